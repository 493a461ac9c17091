#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/sampler.hpp>

#include "digits/batch.hpp"
#include "digits/dataset.hpp"
#include "digits/metrics.hpp"
#include "digits/model.hpp"

namespace digits {

/// Evaluates the model on all images, each on one rank; all ranks get equal results. Collective.
template <class T, class Comm>
tutti::task<metrics> evaluate(model<T>& net, const dataset& data, Comm& world) {
  constexpr std::size_t at_once = 256;
  metrics result;
  auto samples = tutti::train::sampler::exact(data.size(), world);
  while (samples.left() > 0) {
    const auto numbers = samples.take(at_once);
    const std::vector<std::uint32_t> some(numbers.begin(), numbers.end());
    const auto images = gather<T>(data, some);
    judge(result, net.forward(images), std::span{images.labels});
  }
  co_await tutti::train::combine(world, result.loss, result.accuracy);
  co_return result;
}

}  // namespace digits
