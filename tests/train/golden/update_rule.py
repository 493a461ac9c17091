#!/usr/bin/env python3
"""Prints golden vectors of torch's SGD and AdamW in float64: tests/train/golden/update_rule.inl is what torch 1.13 gave.

    python3 tests/train/golden/update_rule.py > tests/train/golden/update_rule.inl
"""

import torch

start = [1.0, -2.0, 0.5, 3.0, 0.0]


def gradient(step, i):
    return ((step * 7 + i * 5) % 11 - 5) / 4


def run(optimizer):
    p = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    o = optimizer([p])
    for step in range(1, 11):
        p.grad = torch.tensor([gradient(step, i) for i in range(len(start))], dtype=torch.float64)
        o.step()
    return ", ".join(x.hex() for x in p.tolist())


print(f"// Written by update_rule.py from torch {torch.__version__}; do not edit.\n// clang-format off")
for name, optimizer in [
    ("plain_sgd", lambda p: torch.optim.SGD(p, lr=0.1)),
    ("momentum_sgd", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)),
    ("default_adamw", lambda p: torch.optim.AdamW(p, lr=1e-3)),
    ("other_adamw", lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
]:
    print(f"inline const std::vector<double> {name}{{{run(optimizer)}}};")
