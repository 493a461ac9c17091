#!/usr/bin/env python3
"""Prints golden vectors of torch's sampler: tests/train/golden/sampler.inl is what torch 1.13 of Debian 12 gave.

    python3 tests/train/golden/sampler.py > tests/train/golden/sampler.inl
"""

import torch
from torch.utils.data.distributed import DistributedSampler


def braced(numbers):
    return "{" + ", ".join(map(str, numbers)) + "}"


def permutation(n, seed):
    g = torch.Generator()
    g.manual_seed(seed)
    return torch.randperm(n, generator=g).tolist()


def deal(n, ranks, shuffle, drop, seed, epoch):
    for rank in range(ranks):
        s = DistributedSampler(range(n), ranks, rank, shuffle=shuffle, seed=seed, drop_last=drop)
        s.set_epoch(epoch)
        yield list(s)


print(f"// Written by sampler.py from torch {torch.__version__}; do not edit.\n// clang-format off")
print("inline const std::vector<golden_permutation> permutations{")
for n, seed in [(0, 0), (1, 0), (2, 0), (10, 0), (10, 1), (33, 42), (20, 2**32 + 5), (20, 2**63 - 1)]:
    print(f"  {{{n}, {seed}u, {braced(permutation(n, seed))}}},")
print("};\ninline const std::vector<golden_deal> deals{")
for n, ranks, shuffle, drop, seed, epoch in [
    (10, 4, False, False, 0, 0),
    (10, 4, False, True, 0, 0),
    (10, 4, True, False, 0, 0),
    (10, 4, True, False, 0, 1),
    (10, 4, True, True, 7, 3),
    (12, 4, True, True, 7, 3),
    (3, 8, True, False, 1, 0),
    (3, 8, False, True, 0, 0),
    (1, 5, True, False, 0, 9),
    (0, 3, True, False, 0, 0),
    (17, 1, True, False, 2**32 - 1, 1),
    (23, 5, True, False, 123456789, 11),
]:
    parts = ",\n     ".join(braced(part) for part in deal(n, ranks, shuffle, drop, seed, epoch))
    text = [str(b).lower() for b in (shuffle, drop)]
    print(f"  {{{n}, {ranks}, {text[0]}, {text[1]}, {seed}u, {epoch},\n    {{{parts}}}}},")
print("};")
large = permutation(100003, 2024)
mixed = 0
for x in large:
    mixed = (mixed * 31 + x) % 2**64
print(f"inline constexpr std::uint64_t hash_of_100003_by_2024 = {mixed}u;")
