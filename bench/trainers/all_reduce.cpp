// The trainer on tutti as on MPI, with one blocking all_reduce of all gradients in each step.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

#include "trainers/exchange.hpp"
#include "trainers/trainer.hpp"

namespace {

class all_reduce_exchange {
 public:
  all_reduce_exchange(tutti::communicator<>& world, std::span<const tutti::grad::parameter_shape> shapes)
      : world_(world), array_(shapes) {}
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  void broadcast(std::span<float> parameters) { world_.broadcast(parameters, 0).wait(); }
  std::span<const std::span<float>> gradients() const { return array_.gradients(); }
  void begin(double samples) { array_.begin(samples); }
  void ready(std::size_t) {}
  double finish(double loss) {
    return array_.finish(loss, [&](std::span<float> all) { world_.all_reduce(all).wait(); });
  }

 private:
  tutti::communicator<>& world_;
  trainers::whole_array array_;
};

}  // namespace

int main(int argc, char** argv) try {
  const auto wanted = trainers::parse(argc, argv);
  auto world = tutti::init();
  trainers::run(wanted, "all_reduce", [&](const std::vector<tutti::grad::parameter_shape>& shapes) {
    return all_reduce_exchange{world, shapes};
  });
} catch (const std::exception& failure) {
  std::fprintf(stderr, "trainer-all-reduce: %s\n", failure.what());
  return 1;
}
