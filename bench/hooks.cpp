// Measures a pass of a grad::reducer with each hook. All gradients are marked at once, so that computation hides
// nothing. Prints the median of the slowest rank's times; every round runs all hooks.
//
//   tutti-run -n 4 -- bench-hooks [MiB ...]
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tutti/grad/compress.hpp>
#include <tutti/grad/reproducible.hpp>
#include <tutti/tutti.hpp>

namespace {

using world_t = tutti::communicator<>;
using clock_type = std::chrono::steady_clock;
constexpr std::size_t rounds = 15;  // odd, for the median

struct candidate {
  std::string name;
  std::function<void()> pass;
  std::vector<double> milliseconds = {};
};

double median(std::vector<double> of) {
  std::ranges::nth_element(of, of.begin() + rounds / 2);
  return of[rounds / 2];
}

/// Returns a candidate that runs a pass with the hook, after `kept` calls of its keep().
template <class Hook>
candidate with(std::string name, world_t& world, std::size_t mib, Hook hook, std::size_t kept = 0) {
  constexpr std::size_t rows = 512;
  const std::vector<tutti::grad::parameter_shape> shapes(4, {"", (mib << 18) / 4, tutti::dtype::f32, rows});
  auto r = std::make_shared<tutti::grad::reducer<world_t, Hook>>(world, shapes, tutti::grad::reducer_options{},
                                                                 std::move(hook));
  for (const auto g : r->gradients())
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(i % 1000) * 0.001F;
  return {std::move(name), [r, &world, kept] {
            auto pass = r->begin(1, tutti::grad::contribution::sum);
            if constexpr (requires { r->hook().keep(*r); })
              for (std::size_t k = 0; k < kept; ++k) r->hook().keep(*r);
            for (std::size_t i = r->size(); i-- > 0;) pass.ready(i);
            tutti::sync_wait(world, pass.finish());
          }};
}

void measure(world_t& world, std::size_t mib) {
  using namespace tutti::grad;
  const auto n = static_cast<std::size_t>(world.size());
  std::vector<candidate> all;
  all.push_back(with("sum_hook", world, mib, sum_hook{}));
  all.push_back(with("sum_hook, in rank order", world, mib, sum_hook{{.order = tutti::reduction_order::rank}}));
  all.push_back(with("reproducible_hook, a shard for each rank", world, mib, reproducible_hook{world, n}));
  all.push_back(with("reproducible_hook, 4 shards for each rank", world, mib, reproducible_hook{world, 4 * n}, 3));
  all.push_back(with("reproducible_hook, 3 shards for each rank", world, mib, reproducible_hook{world, 3 * n}, 2));
  all.push_back(with("compress_hook<bfloat16>", world, mib, compress_hook<tutti::bfloat16>{}));
  for (auto& c : all) c.pass();
  for (std::size_t i = 0; i < rounds; ++i)
    for (auto& c : all) {
      world.barrier().wait();
      const auto start = clock_type::now();
      c.pass();
      const std::chrono::duration<double, std::milli> spent = clock_type::now() - start;
      c.milliseconds.push_back(world.all_reduce(spent.count(), tutti::max).wait());
    }
  if (world.rank() != 0) return;
  const double plain = median(all[0].milliseconds);
  for (const auto& c : all)
    std::printf("%4zu  %-44s %8.2f  %5.2f\n", mib, c.name.c_str(), median(c.milliseconds),
                median(c.milliseconds) / plain);
}

}  // namespace

int main(int argc, char** argv) try {
  auto world = tutti::init();
  if (world.rank() == 0) std::printf("%4s  %-44s %8s  %5s\n", "MiB", "hook", "ms", "times");
  for (int i = 1; i < std::max(argc, 2); ++i) measure(world, argc > 1 ? std::stoul(argv[i]) : 25);
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench-hooks: %s\n", e.what());
  return 1;
}
