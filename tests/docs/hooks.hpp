#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <tutti/communicator/with_hooks.hpp>
#include <tutti/grad/adasum.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/hooks.md.

namespace docs_hooks {

using world_t = tutti::communicator<tutti::threads>;
inline const std::vector<tutti::grad::parameter_shape> shapes{{"w", 64 * 64, tutti::dtype::f32, 64}, {"b", 8}};

struct clipped_sum {
  float most;
  template <class Comm, class T>
  tutti::op operator()(Comm& world, tutti::grad::bucket_view<T> bucket) const {
    for (T& x : bucket.gradients()) x = std::clamp(x, T(-most), T(most));
    return world.all_reduce(bucket.elements);
  }
};

struct slow_calls {
  static constexpr const char* name = "slow_calls";  // errors tell it
  void after(const tutti::operation_view& op) {
    const auto took = tutti::clock::now() - op.info.issued;
    if (took > std::chrono::seconds(1)) ++calls[op.info.collective];
  }
  std::map<std::string, int> calls;
};

inline std::size_t calls_that_are_slow() {
  auto world = tutti::with_hooks(tutti::init(), slow_calls{});
  world.barrier().wait();
  const auto& slow = world.backend().hooks().calls;
  return slow.size();
}

template <class Reducer>
float mean_of_ranks(world_t& world, Reducer& r) {
  auto pass = r.begin();
  for (std::size_t i = 2; i-- > 0;) {
    const auto g = r.template gradient<float>(i);
    std::fill(g.begin(), g.end(), static_cast<float>(world.rank() + 1));
    pass.ready(i);
  }
  tutti::sync_wait(world, pass.finish());
  return r.template gradient<float>(0)[5];
}

/// What each hook makes of the ranks' numbers, and last the page's own one.
inline std::array<float, 9> means(world_t& world) {
  tutti::grad::reducer ring{world, shapes, {}, tutti::grad::sum_hook{{.via = tutti::algorithm::ring}}};
  tutti::grad::reducer plain{world, shapes, {}, tutti::grad::mean_hook{}};
  tutti::grad::reducer after{world, shapes, {}, tutti::grad::divide_after_hook{}};
  tutti::grad::reducer half{world, shapes, {}, tutti::grad::compress_hook<tutti::bfloat16>{}};
  tutti::grad::reducer eighth{world, shapes, {}, tutti::grad::quantize_hook{}};
  tutti::grad::reducer low{world, shapes, {}, tutti::grad::powersgd_hook{{.rank = 4, .start_pass = 10}}};
  tutti::grad::reducer both{
      world, shapes, {}, tutti::grad::compress_hook<tutti::bfloat16, tutti::grad::powersgd_hook>{}};
  tutti::grad::reducer adaptive{world, shapes, {}, tutti::grad::adasum_hook{}};
  tutti::grad::reducer own{world, shapes, {}, clipped_sum{1.5f}};
  return {mean_of_ranks(world, ring), mean_of_ranks(world, plain),    mean_of_ranks(world, after),
          mean_of_ranks(world, half), mean_of_ranks(world, eighth),   mean_of_ranks(world, low),
          mean_of_ranks(world, both), mean_of_ranks(world, adaptive), mean_of_ranks(world, own)};
}

}  // namespace docs_hooks
