#!/usr/bin/env python3
"""torch's DistributedDataParallel on tutti: a small regression; ranks see different samples and end with equal parameters.

    tutti-run -n 2 -- /usr/bin/python3 examples/torch_ddp/train.py build/release/examples/libtutti_torch.so

torchrun does, too (that of Debian 12 is broken).
"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti_process_group

tutti_process_group.register(sys.argv[1])
dist.init_process_group("tutti")
torch.manual_seed(dist.get_rank())  # other parameters on every rank: DDP takes those of rank 0
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    x = torch.randn(16, 8)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
loss = loss.detach()
dist.all_reduce(loss)
if dist.get_rank() == 0:
    print(f"loss {loss.item() / dist.get_world_size():.4f} after 200 steps on {dist.get_world_size()} ranks")
