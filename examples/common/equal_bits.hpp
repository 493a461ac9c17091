#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "common/hash.hpp"

namespace common {

/// Checks that all ranks hold equal bytes; returns a line with the hash of each rank. Collective. Errors:
/// std::runtime_error with that line, on all ranks, if the hashes differ.
template <class Comm>
tutti::task<std::string> equal_bits(Comm& world, std::span<const std::byte> bytes) {
  const std::uint64_t mine = fnv1a(bytes);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  co_await world.all_gather(std::span{&mine, 1}, all);
  std::string text;
  for (std::size_t r = 0; r < all.size(); ++r) {
    char hash[48];
    std::snprintf(hash, sizeof hash, "rank %zu %016llx ", r, static_cast<unsigned long long>(all[r]));
    text += hash;
  }
  if (std::ranges::count(all, all[0]) != std::ssize(all)) throw std::runtime_error{"the ranks differ: " + text};
  co_return text + " (all equal)";
}

}  // namespace common
