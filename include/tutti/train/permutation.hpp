#pragma once
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include <tutti/config.hpp>

namespace tutti::train {

namespace detail {

/// The shuffle of torch for what a 32-bit number can choose from without a noticeable bias.
template <class Index>
void shuffle_few(std::span<Index> numbers, std::mt19937& random) {
  std::iota(numbers.begin(), numbers.end(), Index{0});
  const std::size_t n = numbers.size();
  for (std::size_t i = 0; i + 1 < n; ++i) std::swap(numbers[i], numbers[i + random() % (n - i)]);
}

/// And the one for more: inside out, with 64-bit numbers, the upper half drawn first.
template <class Index>
void shuffle_many(std::span<Index> numbers, std::mt19937& random) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t high = random(), low = random();
    const auto j = (high << 32 | low) % (i + 1);
    numbers[i] = static_cast<Index>(i);
    numbers[i] = numbers[j];
    numbers[j] = static_cast<Index>(i);
  }
}

}  // namespace detail

/// From this many elements on torch draws 64-bit numbers; before version 2 it never did.
inline constexpr std::size_t many_elements = 0xffffffffu / 20;

/// Fills `into` with 0, 1, … in the order of `torch.randperm(n, generator=g.manual_seed(seed))` on the CPU: the same
/// numbers on every machine and compiler. As there, only the lower 32 bits of the seed count. `Index` must be able to
/// number the elements. Cost: O(n).
template <class Index, std::size_t N>
void permute(std::span<Index, N> into, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed & 0xffffffffu));
  if (into.size() < many_elements)
    detail::shuffle_few<Index>(into, random);
  else
    detail::shuffle_many<Index>(into, random);
}

}  // namespace tutti::train
