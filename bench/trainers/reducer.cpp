// The trainer on tutti's reducer, which reduces buckets during the backward pass.
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "trainers/trainer.hpp"

namespace {

class reducer_exchange {
 public:
  reducer_exchange(tutti::communicator<>& world, std::span<const tutti::grad::parameter_shape> shapes)
      : world_(world),
        reducer_(std::make_unique<tutti::grad::reducer<tutti::communicator<>>>(
            world, shapes, tutti::grad::reducer_options{.limits = {64 << 10, 128 << 10}})),
        gradients_(reducer_->gradients<float>()) {}
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  void broadcast(std::span<float> parameters) { world_.broadcast(parameters, 0).wait(); }
  std::span<const std::span<float>> gradients() const { return gradients_; }
  void begin(double samples) {
    samples_ = samples;
    pass_.emplace(reducer_->begin(samples, tutti::grad::contribution::sum));
  }
  void ready(std::size_t i) { pass_->ready(i); }
  double finish(double loss) {
    auto pass = std::move(*pass_);
    pass_.reset();
    tutti::sync_wait(world_.engine(), pass.finish());
    std::array<double, 2> both{loss, samples_};
    world_.all_reduce(both).wait();
    return both[0] / both[1];
  }

 private:
  tutti::communicator<>& world_;
  std::unique_ptr<tutti::grad::reducer<tutti::communicator<>>> reducer_;
  std::vector<std::span<float>> gradients_;
  std::optional<tutti::grad::reducer<tutti::communicator<>>::pass_type> pass_;
  double samples_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  const auto wanted = trainers::parse(argc, argv);
  auto world = tutti::init();
  trainers::run(wanted, "reducer", [&](const std::vector<tutti::grad::parameter_shape>& shapes) {
    return reducer_exchange{world, shapes};
  });
} catch (const std::exception& failure) {
  std::fprintf(stderr, "trainer-reducer: %s\n", failure.what());
  return 1;
}
