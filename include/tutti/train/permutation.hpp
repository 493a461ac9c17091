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

/// Shuffles as torch does for few elements, with one 32-bit random number for each; the bias of the remainder is
/// negligible then.
template <class Index>
void shuffle_few(std::span<Index> numbers, std::mt19937& random) {
  std::iota(numbers.begin(), numbers.end(), Index{0});
  const std::size_t n = numbers.size();
  for (std::size_t i = 0; i + 1 < n; ++i) std::swap(numbers[i], numbers[i + random() % (n - i)]);
}

/// Shuffles as torch does for many elements: inside out, with 64-bit random numbers, whose upper half is drawn first.
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

/// The number of elements from which on torch draws 64-bit numbers; versions before 2 never do.
inline constexpr std::size_t many_elements = 0xffffffffu / 20;

/// Fills `into` with the numbers 0 to n - 1 in the order of `torch.randperm(n, generator=g.manual_seed(seed))` on the
/// CPU, which is the same on every machine and with every compiler. As in torch, only the lower 32 bits of the seed
/// count. `Index` must be able to represent n - 1. Cost: O(n).
template <class Index, std::size_t N>
void permute(std::span<Index, N> into, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed & 0xffffffffu));
  if (into.size() < many_elements)
    detail::shuffle_few<Index>(into, random);
  else
    detail::shuffle_many<Index>(into, random);
}

}  // namespace tutti::train
