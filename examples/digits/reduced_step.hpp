#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/grad/reproducible.hpp>

#include "common/gradient_shapes.hpp"
#include "digits/divided_velocity.hpp"
#include "digits/model.hpp"
#include "digits/optimizer.hpp"
#include "digits/options.hpp"
#include "digits/step.hpp"

namespace digits {

/// A step in which every rank gets all gradients from a reducer, with some hook, and updates all parameters, or with
/// --zero 1 its part of them.
template <class T, class Hook>
class reduced_step : public step_policy<T> {
 public:
  reduced_step(const options& wanted, model<T>& net, tutti::communicator<>& world, Hook hook)
      : step_policy<T>{wanted},
        world_{world},
        net_{net},
        // Small buckets for a small model: those of the dense layers are reduced while the convolutions are computed.
        reducer_{world,
                 common::gradient_shapes<T>(net),
                 {.limits = {.first_bytes = 16 << 10, .cap_bytes = 128 << 10}},
                 std::move(hook)},
        gradients_{reducer_.template gradients<T>()},
        share_{parts_of<T>(wanted, world)} {
    if constexpr (reproducible) share_ = {reducer_.hook().shards().first, reducer_.hook().shards().end, wanted.shards};
    if (wanted.zero == 1)
      divided_.emplace(world, net.parameters(), momentum_rule);
    else
      whole_.emplace(net.parameters().size());
  }

  std::span<const std::span<T>> gradients() override { return gradients_; }
  typename step_policy<T>::share parts() const override { return share_; }
  gradient_mode later_parts() const override {
    return reproducible ? gradient_mode::overwrite : gradient_mode::accumulate;
  }
  void next_part() override {
    if constexpr (reproducible) reducer_.hook().keep(reducer_);
  }

  void begin(std::size_t images) override {
    images_ = static_cast<double>(images);
    pass_.emplace(reducer_.begin(images_, tutti::grad::contribution::sum));
  }
  void ready(std::size_t i) override {
    // Adasum does not divide the ranks' gradients, so each must be a mean already.
    if constexpr (requires { requires Hook::scale == tutti::grad::scaling::none; })
      if (images_ > 0) tutti::grad::divide(gradients_[i], images_);
    pass_->ready(i);
  }
  tutti::task<> finish(double rate) override {
    auto pass = std::move(*pass_);
    pass_.reset();
    pass.rest_unused();  // for a rank that computes no part
    co_await pass.finish();
    if (scaler_) {
      const float before = scaler_->scale();
      const auto u = scaler_->unscale(reducer_);
      scaler_->update(u);
      if constexpr (requires {
                      reducer_.hook().forget_pass();
                    })  // its errors are those of gradients with the old scale
        if (u.overflow || scaler_->scale() != before) reducer_.hook().forget_pass();
      if (u.overflow) co_return;  // on all ranks, since their gradients are equal
    }
    if (divided_) {
      divided_->rule().rate = rate;
      co_await divided_->step_reduced(gradients_);
    } else {
      whole_->step(net_.parameters(), gradients_, rate);
    }
  }

  tutti::task<std::vector<T>> velocity() override {
    if (divided_) co_return co_await gather_velocity(world_, *divided_, net_.parameters().size());
    const auto all = whole_->velocity();
    co_return std::vector<T>(all.begin(), all.end());
  }
  void set_velocity(std::span<const T> all) override {
    if (divided_)
      keep_velocity(*divided_, all);
    else
      std::ranges::copy(all, whole_->velocity().begin());
  }

 private:
  static constexpr bool reproducible = std::is_same_v<Hook, tutti::grad::reproducible_hook>;

  using step_policy<T>::scaler_;
  using reducer_type = tutti::grad::reducer<tutti::communicator<>, Hook>;

  tutti::communicator<>& world_;
  model<T>& net_;
  reducer_type reducer_;
  std::vector<std::span<T>> gradients_;
  typename step_policy<T>::share share_;
  std::optional<typename reducer_type::pass_type> pass_;
  std::optional<sgd<T>> whole_;
  std::optional<divided_sgd<T>> divided_;
  double images_ = 0;
};

}  // namespace digits
