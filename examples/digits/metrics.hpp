#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>

#include "common/softmax_cross_entropy.hpp"

namespace digits {

/// The results of a model on some images: on those of this rank, and on all once train::combine() has added them up.
struct metrics {
  tutti::train::weighted_mean loss;
  tutti::train::top_k_accuracy<1, 5> accuracy;
};

/// Adds the loss and accuracy of one row of logits for each label; overwrites the logits.
template <class T>
void judge(metrics& all, std::span<T> logits, std::span<const std::uint8_t> labels) {
  all.accuracy.add(logits, labels);
  all.loss.add_sum(common::softmax_cross_entropy(logits, labels), static_cast<double>(labels.size()));
}

}  // namespace digits
