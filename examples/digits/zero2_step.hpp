#pragma once

#include <cstddef>
#include <span>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "digits/divided_velocity.hpp"
#include "digits/model.hpp"
#include "digits/options.hpp"
#include "digits/step.hpp"

namespace digits {

/// The step of --zero 2: each rank gets the sums of its part of the gradients only, updates its part of the parameters,
/// and all gather the parts. Uses no reducer, and so no hook.
template <class T>
class zero2_step : public step_policy<T> {
 public:
  zero2_step(const options& wanted, model<T>& net, tutti::communicator<>& world)
      : step_policy<T>{wanted},
        world_{world},
        net_{net},
        optimizer_{world, net.parameters(), momentum_rule},
        memory_(net.parameters().size()),
        share_{parts_of<T>(wanted, world)} {
    for (const auto& tensor : net.tensors())
      gradients_.push_back(std::span{memory_}.subspan(tensor.first, tensor.count));
  }

  std::span<const std::span<T>> gradients() override { return gradients_; }
  typename step_policy<T>::share parts() const override { return share_; }

  void begin(std::size_t images) override {
    optimizer_.begin(static_cast<double>(images), tutti::grad::contribution::sum);
  }
  void ready(std::size_t i) override {
    flights_.push_back(optimizer_.reduce(gradients_[i], net_.tensors()[i].first));
    world_.engine().poll();
  }
  tutti::task<> finish(double rate) override {
    for (auto& flight : flights_) co_await std::move(flight);
    flights_.clear();
    double factor = 1;
    if (scaler_) {
      co_await optimizer_.average();
      const auto u = co_await scaler_->agree(world_, optimizer_.gradient_shard());
      scaler_->update(u);
      if (u.overflow) co_return;
      factor = u.factor;
    }
    optimizer_.rule().rate = rate;
    co_await optimizer_.step(factor);
  }

  tutti::task<std::vector<T>> velocity() override {
    return gather_velocity(world_, optimizer_, net_.parameters().size());
  }
  void set_velocity(std::span<const T> all) override { keep_velocity(optimizer_, all); }

 private:
  using step_policy<T>::scaler_;

  tutti::communicator<>& world_;
  model<T>& net_;
  divided_sgd<T> optimizer_;
  std::vector<T> memory_;  // all gradients; a large model would free each range once it is reduced
  std::vector<std::span<T>> gradients_;
  typename step_policy<T>::share share_;
  std::vector<tutti::op> flights_;
};

}  // namespace digits
