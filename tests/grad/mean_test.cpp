#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/reducer.hpp>
#include <type_traits>
#include <vector>

namespace {
using tutti::dtype;
using tutti::grad::step;

// 3 ranks, whose means round: a sum that is divided once.
TEST_CASE("mean_hook: the mean over all ranks, in all types, whatever the weights; flags and weights stay exact") {
  std::vector<tutti::grad::parameter_shape> shapes{
      {"a", 70'000}, {"b", 3, dtype::f64}, {"none", 0}, {"c", 5, dtype::f16}, {"d", 40}, {"e", 9, dtype::bf16}};
  std::vector<int> wrong(3);
  tutti::run_threads(3, [&](tutti::communicator<tutti::threads>& world) {
    const int rank = world.rank();
    tutti::grad::reducer reducer{world, shapes, {{.first_bytes = 256, .cap_bytes = 1000}}, tutti::grad::mean_hook{}};
    const auto all = [&](auto f) {
      for (std::size_t i = 0; i < shapes.size(); ++i)
        tutti::grad::visit_gradient(shapes[i].type, [&]<class T>() { f(reducer.gradient<T>(i), T{}); });
    };
    for (int round = 0; round < 3; ++round) {
      // Rank 2 has no samples in round 1; in round 2 rank 1 has met an overflow.
      auto pass = reducer.begin(round == 1 && rank == 2 ? 0 : 2 + rank);
      all([&](auto gradient, auto zero) {
        for (auto& x : gradient) x = decltype(zero)(static_cast<float>(1 + 3 * rank));
      });
      for (std::size_t i = shapes.size(); i-- > 1;) pass.ready(i);
      if (round == 2 && rank == 1)
        pass.skip(step::skip_overflow);
      else
        pass.ready(0);
      const auto done = tutti::sync_wait(world, pass.finish());
      int& bad = wrong[static_cast<std::size_t>(rank)];
      bad += done != (round == 2 ? step::skip_overflow : step::apply);
      bad += reducer.total_weight() != (round == 1 ? 5 : 9);
      const double mean = round == 1 ? 5.0 / 3 : 4;
      if (round < 2)
        all([&](auto gradient, auto zero) {
          using T = decltype(zero);
          const T expected{static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(mean)};
          for (const auto x : gradient) bad += static_cast<double>(x) != static_cast<double>(expected);
        });
    }
  });
  CHECK(wrong == std::vector<int>(3, 0));
}

TEST_CASE("mean_hook: a factor that it would not look at is refused") {
  std::vector<int> refused(2);
  tutti::run_threads(2, [&](tutti::communicator<tutti::threads>& world) {
    const std::vector<tutti::grad::parameter_shape> one{{"a", 3}};
    try {
      tutti::grad::reducer bad{world, one, {.predivide = 4}, tutti::grad::mean_hook{}};
    } catch (const tutti::usage_error& e) {
      const std::string text = e.what();
      refused[static_cast<std::size_t>(world.rank())] = text.find("predivide = 4") != text.npos;
    }
    world.barrier().wait();  // which goes on
  });
  CHECK(refused == std::vector<int>(2, 1));
}

}  // namespace
