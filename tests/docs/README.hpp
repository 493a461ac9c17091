#pragma once
#include <span>
#include <vector>

#include <tutti/tutti.hpp>

// The code around the blocks of README.md.

namespace docs_readme {

struct model {
  std::vector<float> weights = std::vector<float>(8);
  std::vector<float>& parameters() { return weights; }
  static std::vector<tutti::grad::parameter_shape> gradient_shapes() { return {{"w", 8}}; }
  template <class Ready>
  static void backward(const std::vector<float>&, const std::vector<std::span<float>>&, Ready ready) {
    ready(0);
  }
  static void step(const std::vector<std::span<float>>&) {}
};
inline std::vector<std::vector<float>> data;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"       // the weight of size() is a double: few programs compile with
#pragma GCC diagnostic ignored "-Wsign-conversion"  // these warnings
#pragma GCC diagnostic ignored "-Wreturn-type"      // of a main() that is none

inline tutti::task<> train(tutti::communicator<>& world, model& net) {
  co_await world.broadcast(net.parameters(), /*root=*/0);
  tutti::grad::reducer reducer{world, net.gradient_shapes()};  // gradients live in the reducer's arena
  for (auto& batch : data) {
    auto pass = reducer.begin(/*weight=*/batch.size());                       // an exact weighted mean over ranks
    net.backward(batch, reducer.gradients(), [&](int i) { pass.ready(i); });  // bucket k travels while k+1 is computed
    co_await pass.finish();
    net.step(reducer.gradients());
  }
}

int main() {
  auto world = tutti::init();  // tutti-run, torchrun, Slurm, mpirun; alone: a world of one
  model net;
  tutti::sync_wait(world, train(world, net));
}
#pragma GCC diagnostic pop

}  // namespace docs_readme
