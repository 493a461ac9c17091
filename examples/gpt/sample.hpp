#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/random.hpp"
#include "gpt/batch.hpp"
#include "gpt/model.hpp"
#include "gpt/text.hpp"

namespace gpt {

/// Draws a token with the probabilities of the softmax of its logits.
template <class T>
token draw(std::span<const T> logits, common::random_source& random) {
  const T largest = *std::ranges::max_element(logits);
  std::vector<double> sums;
  double sum = 0;
  for (const T logit : logits) sums.push_back(sum += std::exp(static_cast<double>(logit - largest)));
  const auto found = std::ranges::upper_bound(sums, (random.symmetric(0.5) + 0.5) * sum);
  return static_cast<token>(std::min(found, sums.end() - 1) - sums.begin());
}

/// Returns `count` characters that the model writes after the token `first`; each is drawn given as many characters
/// before it as the context holds.
template <class T>
std::string sample(model<T>& net, const tokenizer& alphabet, token first, std::size_t count,
                   common::random_source random) {
  std::vector<token> written{first};
  std::string text;
  while (text.size() < count) {
    batch last{std::min(written.size(), net.shape().context)};
    last.inputs.assign(written.end() - static_cast<std::ptrdiff_t>(last.length), written.end());
    written.push_back(draw<T>(net.forward(last).last(alphabet.size()), random));
    text += alphabet.character(written.back());
  }
  return text;
}

}  // namespace gpt
