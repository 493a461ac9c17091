#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ios>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "common/equal_bits.hpp"
#include "common/loss_log.hpp"
#include "digits/batch.hpp"
#include "digits/dataset.hpp"
#include "digits/evaluate.hpp"
#include "digits/make_step.hpp"
#include "digits/model.hpp"
#include "digits/options.hpp"
#include "digits/progress.hpp"
#include "digits/step.hpp"
#include "digits/training_state.hpp"

namespace digits {

/// A trainer of a network, data-parallel over the ranks of a world: each step's images are divided among them, and
/// gradients are reduced while the backward pass runs, by the step policy.
template <class T>
class trainer {
 public:
  trainer(const options& wanted, const split_dataset& data, tutti::communicator<>& world)
      : options_{wanted},
        data_{data},
        world_{world},
        net_{data.train.shape, wanted.seed},
        step_{make_step<T>(wanted, net_, world)},
        steps_{(data.train.size() + wanted.batch - 1) / wanted.batch},
        progress_{world.rank(), wanted.epochs} {}

  tutti::task<> run() {
    co_await world_.broadcast(net_.parameters(), /*root=*/0);
    const std::size_t first = co_await resume();
    if (world_.rank() == 0) loss_log_.open(options_.loss_log, first == 0 ? std::ios::trunc : std::ios::app);
    for (std::size_t epoch = first; epoch < options_.epochs; ++epoch) {
      const auto start = std::chrono::steady_clock::now();
      const double loss = co_await train_epoch(epoch);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      const metrics test = co_await evaluate(net_, data_.test, world_);
      progress_.epoch(epoch + 1, loss, test, static_cast<double>(data_.train.size()) / spent.count());
      if (options_.checkpoint.empty()) continue;
      co_await save_training(world_, options_.checkpoint, epoch + 1, net_, *step_);
    }
    const std::string bits = co_await common::equal_bits(world_, std::as_bytes(net_.parameters()));
    progress_.line("parameters: " + bits);
  }

  /// Measures the speed of training, without evaluation and files, after one epoch to warm up.
  tutti::task<> measure_speed() {
    co_await train_epoch(0);
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t epoch = 1; epoch <= options_.epochs; ++epoch) co_await train_epoch(epoch);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const auto images = static_cast<double>(options_.epochs * data_.train.size());
    progress_.line("ranks " + std::to_string(ranks()) + ", batch " + std::to_string(options_.batch) + ": " +
                   std::to_string(std::llround(images / spent.count())) + " images/s");
  }

 private:
  /// Trains for one epoch and returns the mean loss; each step's loss is that before its update.
  tutti::task<double> train_epoch(std::size_t epoch) {
    const auto order = epoch_order(data_.train.size(), options_.seed, epoch);
    double total = 0;
    for (std::size_t step = 0; step < steps_; ++step) {
      const std::size_t first = step * options_.batch;
      const auto images = std::span{order}.subspan(first, std::min(options_.batch, order.size() - first));
      const double loss = co_await train_step(images, epoch * steps_ + step);
      total += loss * static_cast<double>(images.size());
      progress_.step(epoch + 1, step + 1, steps_, loss);
    }
    co_return total / static_cast<double>(order.size());
  }

  /// Takes one step with the images of all ranks and returns their mean loss before it.
  tutti::task<double> train_step(std::span<const std::uint32_t> images, std::size_t step) {
    const auto parts = step_->parts();
    const auto part = [&](std::size_t i) { return slice(images, i, parts.parts); };
    std::size_t mine = 0;
    for (std::size_t i = parts.first; i < parts.end; ++i) mine += part(i).size();
    step_->begin(mine);
    double mine_loss = 0;
    for (std::size_t i = parts.first; i < parts.end; ++i) {
      const bool last = i + 1 == parts.end;
      mine_loss += net_.backward(
          gather<T>(data_.train, part(i)), step_->gradients(),
          [&](std::size_t tensor) {
            if (last) step_->ready(tensor);
          },
          i == parts.first ? gradient_mode::overwrite : step_->later_parts(), static_cast<T>(step_->loss_scale()));
      if (!last) step_->next_part();
    }
    const double loss = co_await world_.all_reduce(mine_loss) / static_cast<double>(images.size());
    if (!std::isfinite(loss))
      throw std::runtime_error{"the loss is no longer finite at step " + std::to_string(step) +
                               ": try a smaller --lr than " + std::to_string(options_.learning_rate)};
    loss_log_.write(step, loss);
    const double done = static_cast<double>(step) / static_cast<double>(options_.epochs * steps_);
    const double rate = options_.learning_rate * std::max(0.0, 1.0 - done);
    co_await step_->finish(rate);
    co_return loss;
  }

  /// Loads the checkpoint, if rank 0 has one, on all ranks; returns the epoch to begin with.
  tutti::task<std::size_t> resume() {
    const bool here = !options_.checkpoint.empty() && std::filesystem::exists(options_.checkpoint);
    if (!co_await world_.broadcast(here, /*root=*/0)) co_return 0;
    const auto done = load_training(world_, options_.checkpoint, net_, *step_);
    progress_.line("resumed from " + options_.checkpoint.string() + " after epoch " + std::to_string(done));
    co_return done;
  }

  std::size_t ranks() const { return static_cast<std::size_t>(world_.size()); }

  const options& options_;
  const split_dataset& data_;
  tutti::communicator<>& world_;
  model<T> net_;
  std::unique_ptr<step_policy<T>> step_;
  std::size_t steps_;
  progress progress_;
  common::loss_log loss_log_;
};

}  // namespace digits
