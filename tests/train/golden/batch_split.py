#!/usr/bin/env python3
"""Prints golden vectors of DataParallel's and BalancedDataParallel's splits, as torch 1.13 of Debian 12 gives them.

    python3 tests/train/golden/batch_split.py > tests/train/golden/batch_split.inl

torch.chunk is what DataParallel's scatter uses. The arithmetic of the other is that of its scatter(): a share for device
0, whole shares for the others, what is left one by one; and DataParallel's scatter where device 0's share is not smaller,
over the other devices if it is 0.
"""

import torch


def chunked(batch, ranks):
    sizes = [c.size(0) for c in torch.zeros(batch).chunk(ranks)] if batch else []
    return sizes + [0] * (ranks - len(sizes))


def balanced(batch, first, ranks):
    unit = (batch - first) // (ranks - 1)
    if first < unit:
        sizes = [first] + [unit] * (ranks - 1)
        for i in range(batch - sum(sizes)):
            sizes[i + 1] += 1
        return sizes
    return [0] + chunked(batch, ranks - 1) if first == 0 else chunked(batch, ranks)


def row(*numbers):
    return "{" + ", ".join(map(str, numbers)) + "}"


print(f"// Written by batch_split.py from torch {torch.__version__}; do not edit.\n// clang-format off")
print("inline const std::vector<golden_split> equal_splits{")
for batch in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 17, 63, 64, 65, 1000):
    for ranks in (1, 2, 3, 4, 7, 8):
        print(f"  {{{batch}, 0, {ranks}, {row(*chunked(batch, ranks))}}},")
print("};\ninline const std::vector<golden_split> splits_with_first{")
for batch in (0, 1, 3, 4, 5, 10, 17, 32, 64, 100):
    for first in (0, 1, 2, 4, 7, 16, 200):
        for ranks in (2, 3, 4, 8):
            print(f"  {{{batch}, {first}, {ranks}, {row(*balanced(batch, first, ranks))}}},")
print("};")
