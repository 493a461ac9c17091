#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/random.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/update_rule.hpp>

#include "common/equal_bits.hpp"
#include "common/gradient_shapes.hpp"
#include "common/hash.hpp"
#include "common/loss_log.hpp"
#include "common/random.hpp"
#include "gpt/batch.hpp"
#include "gpt/model.hpp"
#include "gpt/options.hpp"
#include "gpt/sample.hpp"
#include "gpt/text.hpp"

namespace gpt {

/// A trainer of a model, data-parallel over the ranks of a world: each step's sequences are divided among them, and the
/// reducer averages their gradients while the backward pass runs.
template <class T, class Comm>
class trainer {
 public:
  trainer(const options& wanted, const corpus& text, Comm& world)
      : options_{wanted},
        text_{text},
        world_{world},
        net_{{text.alphabet.size(), wanted.context, wanted.layers, wanted.heads, wanted.width},
             root_.named("weights").value()},
        // Several buckets for each block, so that one is reduced while the next is computed.
        reducer_{
            world, common::gradient_shapes<T>(net_), {.limits = {.first_bytes = 64 << 10, .cap_bytes = 128 << 10}}},
        gradients_{reducer_.template gradients<T>()},
        adam_mean_(net_.parameters().size()),
        adam_square_(net_.parameters().size()) {}

  tutti::task<> run() {
    co_await check_text();
    co_await world_.broadcast(net_.parameters(), /*root=*/0);
    if (first()) loss_log_.open(options_.loss_log);
    if (first())
      std::printf("%zu characters of %zu kinds; %zu parameters; %zu sequences of %zu in a step, on %d ranks\n",
                  text_.tokens.size(), text_.alphabet.size(), net_.parameters().size(), options_.batch,
                  options_.context, world_.size());
    tutti::train::weighted_mean loss;  // since the last report
    auto since = std::chrono::steady_clock::now();
    for (std::size_t done = 0;; ++done) {
      if (done % options_.validate == 0 || done == options_.steps) {
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - since;
        const double judged = co_await validate();
        if (first())
          report(done, loss, judged,
                 loss.weight() * static_cast<double>(options_.batch * options_.context) / spent.count());
        loss.reset();
        since = std::chrono::steady_clock::now();
      }
      if (done == options_.steps) break;
      loss.add(co_await step(done));
    }
    const std::string bits = co_await common::equal_bits(world_, std::as_bytes(net_.parameters()));
    if (!first()) co_return;
    common::random_source random{root_.named("sample").value()};
    const auto written = sample(net_, text_.alphabet, text_.tokens.front(), options_.sample, random);
    std::printf("parameters: %s\n%s\n", bits.c_str(), written.c_str());
  }

  /// Takes one step with the sequences of all ranks and returns their mean loss before it.
  tutti::task<double> step(std::size_t number) {
    const batch mine = share(number);
    const auto count = static_cast<double>(mine.targets.size());
    auto pass = reducer_.begin(count, tutti::grad::contribution::sum);
    tutti::train::weighted_mean loss;
    loss.add_sum(net_.backward(mine, gradients_, [&](std::size_t i) { pass.ready(i); }), count);
    co_await pass.finish();
    co_await tutti::train::combine(world_, loss);
    if (!std::isfinite(loss.mean()))
      throw std::runtime_error{"the loss is no longer finite at step " + std::to_string(number) +
                               ": try a smaller --lr than " + std::to_string(options_.learning_rate)};
    tutti::train::scale_gradients(reducer_, tutti::train::clip_factor(tutti::train::measure(reducer_).norm(), 1.0));
    update(number);
    loss_log_.write(number, loss.mean());
    co_return loss.mean();
  }

  /// Returns the mean loss over the text that is held out, on all ranks. Collective.
  tutti::task<double> validate() {
    const std::size_t length = options_.context;
    const auto text = text_.validation();
    auto sequences = tutti::train::sampler::exact((text.size() - 1) / length, world_);
    tutti::train::weighted_mean loss;
    while (sequences.left() > 0) {
      batch some{length};
      for (const auto i : sequences.take(8)) some.add(text, static_cast<std::size_t>(i) * length);
      const double total = common::softmax_cross_entropy<T>(net_.forward(some), some.targets);
      loss.add_sum(total, static_cast<double>(some.targets.size()));
    }
    co_await tutti::train::combine(world_, loss);
    co_return loss.mean();
  }

 private:
  /// Returns this rank's part of the sequences of a step, which are the same for any number of ranks.
  batch share(std::size_t number) const {
    common::random_source random{root_.named("sequences").step(number).value()};
    const auto ranks = static_cast<std::size_t>(world_.size()), rank = static_cast<std::size_t>(world_.rank());
    const auto text = text_.train();
    batch mine{options_.context};
    for (std::size_t i = 0; i < options_.batch; ++i) {
      const std::size_t at = random.below(text.size() - options_.context);
      if (i % ranks == rank) mine.add(text, at);
    }
    return mine;
  }

  void update(std::size_t number) {
    const auto step = static_cast<double>(number), steps = static_cast<double>(options_.steps);
    // The first steps are smaller, as Adam's averages are of few gradients then.
    const double warm = std::min(1.0, (step + 1) / 20);
    tutti::train::adamw rule{.rate = options_.learning_rate * warm * (1 - step / steps), .beta2 = 0.99};
    std::span<T> mean{adam_mean_}, square{adam_square_};
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::size_t count = gradients_[i].size();
      rule.weight_decay = net_.tensors()[i].decays() ? 0.1 : 0;
      rule(net_.tensor(i), std::span<const T>{gradients_[i]}, std::array{mean.first(count), square.first(count)},
           number + 1);
      mean = mean.subspan(count);
      square = square.subspan(count);
    }
  }

  tutti::task<> check_text() {
    const std::uint64_t mine = common::fnv1a(std::as_bytes(std::span{text_.tokens}));
    const std::uint64_t theirs = co_await world_.broadcast(mine, /*root=*/0);
    if (mine != theirs) throw std::runtime_error{"the text is another one than that of rank 0"};
  }

  void report(std::size_t done, const tutti::train::weighted_mean& loss, double judged, double speed) const {
    std::printf("step %5zu/%zu  validation loss %.4f", done, options_.steps, judged);
    if (loss.weight() > 0) std::printf("  loss %.4f  %.0f characters/s", loss.mean(), speed);
    std::printf("\n");
    std::fflush(stdout);
  }

  bool first() const { return world_.rank() == 0; }

  const options& options_;
  const corpus& text_;
  Comm& world_;
  tutti::train::seed root_{options_.seed};
  model<T> net_;
  tutti::grad::reducer<Comm> reducer_;
  std::vector<std::span<T>> gradients_;
  std::vector<T> adam_mean_, adam_square_;
  common::loss_log loss_log_;
};

}  // namespace gpt
