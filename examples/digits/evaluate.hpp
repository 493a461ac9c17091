#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "digits/batch.hpp"
#include "digits/dataset.hpp"
#include "digits/metrics.hpp"
#include "digits/model.hpp"

namespace digits {

/// Judges the model on the part of the images that falls to one rank; the ranks' results are to be added.
template <class T>
metrics evaluate(model<T>& net, const dataset& data, std::size_t rank, std::size_t ranks) {
  constexpr std::size_t at_once = 256;
  std::vector<std::uint32_t> numbers(data.size());
  std::iota(numbers.begin(), numbers.end(), 0u);
  auto rest = slice(std::span<const std::uint32_t>{numbers}, rank, ranks);
  metrics result;
  while (!rest.empty()) {
    const auto some = rest.first(std::min(at_once, rest.size()));
    const auto images = gather<T>(data, some);
    result += judge(net.forward(images), std::span{images.labels});
    rest = rest.subspan(some.size());
  }
  return result;
}

}  // namespace digits
