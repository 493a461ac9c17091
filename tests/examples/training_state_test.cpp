#include "digits/training_state.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include "digits/make_step.hpp"
#include "examples/temporary_directory.hpp"

namespace {

/// A training whose gradients are made up: from the first step on the scaled ones overflow until the scale has gone
/// down twice.
struct training {
  training(tutti::communicator<>& in, std::size_t zero, bool scaled) : world{in} {
    wanted.zero = zero;
    wanted.scale_loss = scaled;
    step = digits::make_step<float>(wanted, net, world);
  }
  void take(std::size_t first, std::size_t end) {
    for (std::size_t s = first; s < end; ++s) {
      step->begin(1);
      std::size_t at = s;
      for (const auto& gradient : step->gradients())
        for (float& g : gradient)
          g = (at++ % 7 == 0 ? 0x1.8p113f : 0x1p90f * static_cast<float>(at % 5)) *
              static_cast<float>(step->loss_scale());
      for (std::size_t i = step->gradients().size(); i-- > 0;) step->ready(i);
      tutti::sync_wait(world, step->finish(0x1p-100));
    }
  }
  std::vector<float> all() {
    const auto p = net.parameters();
    std::vector<float> bits(p.begin(), p.end());
    const auto v = tutti::sync_wait(world, step->velocity());
    bits.insert(bits.end(), v.begin(), v.end());
    for (const float x : step->scaler()) bits.push_back(x);
    return bits;
  }

  tutti::communicator<>& world;
  digits::options wanted;
  digits::model<float> net{{8, 8}, 3};
  std::unique_ptr<digits::step_policy<float>> step;
};

}  // namespace

TEST_CASE("digits training state: a run that goes on takes the steps of one that was not interrupted") {
  const temporary_directory folder;
  auto world = tutti::init();
  for (const std::size_t zero : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    CAPTURE(zero);
    const auto file = folder.path() / std::to_string(zero);
    training whole{world, zero, true};
    whole.take(0, 6);
    CHECK(whole.step->scaler() == std::array{0x1p14f, 4.0f});
    training first{world, zero, true};
    first.take(0, 3);
    tutti::sync_wait(world, digits::save_training(world, file, 5, first.net, *first.step));
    training second{world, zero, true};
    CHECK(digits::load_training(world, file, second.net, *second.step) == 5);
    CHECK(second.all() == first.all());
    second.take(3, 6);
    CHECK(second.all() == whole.all());
  }
}

TEST_CASE("digits training state: it is a file that any reader of safetensors opens") {
  const temporary_directory folder;
  auto world = tutti::init();
  const auto file = (folder.path() / "state.safetensors").string();
  training some{world, 0, true};
  some.take(0, 6);
  tutti::sync_wait(world, digits::save_training(world, file, 5, some.net, *some.step));
  std::vector<float> bias(10), weight(64 * 10);
  float scale = 0;
  const std::vector tensors{tutti::train::tensor("module.dense2.bias", std::span{bias}),
                            tutti::train::tensor("module.dense2.weight", std::span{weight}, {64, 10}),
                            tutti::train::tensor("loss_scaler.scale", scale)};
  CHECK(tutti::train::read_tensors(file, tensors) == tutti::train::metadata{{"epoch", "5"}});
  CHECK(scale == 0x1p14f);
  CHECK(std::ranges::equal(bias, some.net.parameters().last(10)));
}

TEST_CASE("digits training state: a run without a loss scale leaves none, and one with it begins anew") {
  const temporary_directory folder;
  auto world = tutti::init();
  const auto file = folder.path() / "state";
  training plain{world, 0, false};
  tutti::sync_wait(world, digits::save_training(world, file, 1, plain.net, *plain.step));
  training scaled{world, 0, true};
  CHECK(digits::load_training(world, file, scaled.net, *scaled.step) == 1);
  CHECK(scaled.step->scaler() == std::array{0x1p16f, 0.0f});
  scaled.take(0, 1);
  tutti::sync_wait(world, digits::save_training(world, file, 2, scaled.net, *scaled.step));
  CHECK(digits::load_training(world, file, plain.net, *plain.step) == 2);
  CHECK(plain.step->loss_scale() == 1);
}
