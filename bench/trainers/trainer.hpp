#pragma once

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/train/update_rule.hpp>

#include "common/command_line.hpp"
#include "common/gradient_shapes.hpp"
#include "common/random.hpp"
#include "digits/batch.hpp"
#include "digits/load.hpp"
#include "digits/model.hpp"
#include "gpt/batch.hpp"
#include "gpt/model.hpp"
#include "gpt/text.hpp"

/// Trains the models of examples/gpt and examples/digits with any exchange, to compare exchanges by steps per second.
namespace trainers {

struct arguments {
  std::string model;
  std::size_t steps = 0, batch = 0;  // the batch is that of all ranks together
};

/// Parses the command line. Errors: std::invalid_argument with the argument.
inline arguments parse(int argc, char** argv) {
  arguments a;
  const auto model = [&a](std::string_view text) {
    if (text != "gpt" && text != "digits") throw std::invalid_argument("is neither gpt nor digits");
    a.model = text;
  };
  const std::size_t one = 1;
  const std::vector<common::option> known{
      {"--model", "NAME", "gpt or digits", model},
      {"--steps", "N", "that are timed", common::number_into(a.steps, one)},
      {"--batch", "N", "sequences or images in a step, over all ranks", common::number_into(a.batch, one)}};
  common::parse(known, std::span<const char* const>{argv + 1, argv + argc});
  if (a.model.empty() || a.steps == 0 || a.batch == 0)
    throw std::invalid_argument("not all options are there:\n" + common::usage(known));
  return a;
}

/// Trains for some steps to warm up, then times the others. `share(step)` returns this rank's samples,
/// `size_of(samples)` their number. Rank 0 prints a line of JSON.
template <class Model, class Exchange, class Share, class SizeOf>
void train(const arguments& wanted, std::string_view name, Model& net, Exchange& ranks, Share share, SizeOf size_of) {
  constexpr std::size_t warm_up = 5;
  ranks.broadcast(net.parameters());
  const auto gradients = ranks.gradients();
  std::vector<float> mean(net.parameters().size()), square(mean.size());
  double loss = 0;
  auto since = std::chrono::steady_clock::now();
  for (std::size_t step = 0; step < warm_up + wanted.steps; ++step) {
    if (step == warm_up) since = std::chrono::steady_clock::now();
    const auto mine = share(step);
    ranks.begin(size_of(mine));
    loss = ranks.finish(net.backward(mine, gradients, [&](std::size_t i) { ranks.ready(i); }));
    tutti::train::adamw rule{.rate = 1e-3};
    for (std::size_t i = 0, at = 0; i < gradients.size(); at += gradients[i++].size()) {
      const std::size_t count = gradients[i].size();
      rule(net.parameters().subspan(at, count), std::span<const float>{gradients[i]},
           std::array{std::span{mean}.subspan(at, count), std::span{square}.subspan(at, count)}, step + 1);
    }
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - since;
  if (!std::isfinite(loss)) throw std::runtime_error("the loss is no longer finite");
  if (ranks.rank() == 0)
    std::printf(
        "{\"model\": \"%s\", \"exchange\": \"%.*s\", \"ranks\": %d, \"steps_per_second\": %.3f, \"loss\": %.6f}\n",
        wanted.model.c_str(), static_cast<int>(name.size()), name.data(), ranks.size(),
        static_cast<double>(wanted.steps) / spent.count(), loss);
}

/// Trains the model of the command line; `make_exchange(shapes)` returns the exchange of its gradients.
template <class MakeExchange>
void run(const arguments& wanted, std::string_view name, MakeExchange make_exchange) {
  if (wanted.model == "gpt") {
    constexpr std::size_t context = 64;
    const gpt::corpus text{gpt::read_text(std::array{std::filesystem::path{"/usr/share/common-licenses"}}), context};
    gpt::model<float> net{{text.alphabet.size(), context, 2, 4, 64}, 1};
    auto ranks = make_exchange(common::gradient_shapes<float>(net));
    const auto share = [&](std::size_t step) {
      common::random_source random{step + 1};
      gpt::batch mine{context};
      for (std::size_t i = 0; i < wanted.batch; ++i) {
        const std::size_t at = random.below(text.train().size() - context);
        if (i % static_cast<std::size_t>(ranks.size()) == static_cast<std::size_t>(ranks.rank()))
          mine.add(text.train(), at);
      }
      return mine;
    };
    train(wanted, name, net, ranks, share, [](const gpt::batch& b) { return static_cast<double>(b.targets.size()); });
  } else {
    const auto data = digits::load_dataset({});
    digits::model<float> net{data.train.shape, 1};
    auto ranks = make_exchange(common::gradient_shapes<float>(net));
    const auto share = [&](std::size_t step) {
      common::random_source random{step + 1};
      std::vector<std::uint32_t> images;
      for (std::size_t i = 0; i < wanted.batch; ++i) {
        const auto image = static_cast<std::uint32_t>(random.below(data.train.size()));
        if (i % static_cast<std::size_t>(ranks.size()) == static_cast<std::size_t>(ranks.rank()))
          images.push_back(image);
      }
      return digits::gather<float>(data.train, images);
    };
    train(wanted, name, net, ranks, share, [](const auto& b) { return static_cast<double>(b.size()); });
  }
}

}  // namespace trainers
