#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

// What torch gave; see sampler.py.

namespace golden {

struct golden_permutation {
  std::size_t count;
  std::uint64_t seed;
  std::vector<std::uint64_t> numbers;
};

struct golden_deal {
  std::size_t samples;
  int ranks;
  bool shuffle, drop_last;
  std::uint64_t seed, epoch;
  std::vector<std::vector<std::uint64_t>> indices;  // [rank]
};

#include "train/golden/sampler.inl"

}  // namespace golden
