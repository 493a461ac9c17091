// Finds the first gradient that is NaN or infinite, and says on which rank, in which bucket and in which parameter: a
// reducer's hook looks at each bucket before it is sent. Hooks around the communicator look at the results of every
// operation: sums of finite numbers can be infinite.
//
//   tutti-run -n 3 -- 09_check_numbers                 trains
//   tutti-run -n 3 -- 09_check_numbers gradient 2 7    rank 2 computes a NaN in step 7
//   tutti-run -n 3 -- 09_check_numbers sum             the ranks add numbers whose sum is infinite
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/communicator/with_hooks.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

/// Returns the first element that is NaN or infinite; the number of elements if there is none.
template <class T>
std::size_t first_bad(std::span<const T> all) {
  std::size_t i = 0;
  while (i < all.size() && std::isfinite(static_cast<double>(all[i]))) ++i;
  return i;
}

/// Hook of a reducer: checks the gradients of this rank, then lets another hook reduce them.
template <class Inner = tutti::grad::sum_hook>
struct checked {
  static constexpr tutti::grad::scaling scale = Inner::scale;
  static constexpr bool gathers = false;  // all gradients are in the bucket
  std::vector<std::string> names;         // of the parameters
  Inner inner{};

  template <class Comm, class T>
  auto operator()(Comm& world, tutti::grad::bucket_view<T> bucket) const {
    for (const auto& slot : bucket.slots) {
      const std::span<const T> gradient = bucket.elements.subspan(slot.offset, slot.count);
      const std::size_t i = first_bad(gradient);
      if (i < gradient.size())
        throw std::runtime_error("rank " + std::to_string(world.rank()) + ", bucket " + std::to_string(bucket.index) +
                                 ": gradient of " + names[static_cast<std::size_t>(slot.parameter)] + "[" +
                                 std::to_string(i) + "] is " + std::to_string(static_cast<double>(gradient[i])));
    }
    return inner(world, bucket);
  }
};

/// Hook around the operations of a communicator: checks their results.
struct finite_results {
  static constexpr const char* name = "finite_results";

  void after(const tutti::operation_view& op) const {
    op.results.for_each([&](const tutti::const_buffer& b) {
      if (b.type == tutti::dtype::f64) check<double>(b);
      if (b.type == tutti::dtype::f32) check<float>(b);
    });
  }

 private:
  template <class T>
  static void check(const tutti::const_buffer& b) {
    const std::span<const T> all{static_cast<const T*>(b.data), b.count};
    const std::size_t i = first_bad(all);
    if (i < all.size()) throw std::runtime_error("element " + std::to_string(i) + " is " + std::to_string(all[i]));
  }
};

/// Linear regression as in 04_gradients; rank `bad_rank` divides by zero in step `bad_step`.
template <class Comm>
tutti::task<> train(Comm& world, int bad_rank, int bad_step) {
  double slope = 0, offset = 0;
  const std::array shapes{tutti::grad::parameter_shape{"slope", 1, tutti::dtype::f64},
                          tutti::grad::parameter_shape{"offset", 1, tutti::dtype::f64}};
  tutti::grad::reducer reducer{world, shapes, {}, checked<>{{"slope", "offset"}}};
  const auto gradient = reducer.template gradients<double>();
  for (int step = 0; step < 400; ++step) {
    auto pass = reducer.begin();
    double d_slope = 0, d_offset = 0;
    const int samples = world.rank() == bad_rank && step == bad_step ? 0 : 4;
    for (int i = 0; i < samples; ++i) {
      const double x = std::sin(1.0 + i + 17 * world.rank() + 0.1 * step);
      const double error = slope * x + offset - (3 * x - 2);
      d_slope += 2 * error * x;
      d_offset += 2 * error;
    }
    gradient[1][0] = d_offset / samples;
    pass.ready(1);
    gradient[0][0] = d_slope / samples;
    pass.ready(0);
    co_await pass.finish();
    slope -= 0.2 * gradient[0][0];
    offset -= 0.2 * gradient[1][0];
  }
  if (world.rank() == 0) std::printf("y = %.4f x %+.4f, and all numbers were finite\n", slope, offset);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "nothing";
  auto world = tutti::with_hooks(tutti::init(), finite_results{});
  if (what == "sum") {
    std::vector<double> large{1, std::numeric_limits<double>::max()};
    world.all_reduce(large).wait();
  }
  const bool bad = what == "gradient" && argc > 3;
  tutti::sync_wait(world, train(world, bad ? std::atoi(argv[2]) : -1, bad ? std::atoi(argv[3]) : -1));
} catch (const std::exception& e) {
  std::fprintf(stderr, "09_check_numbers: %s\n", e.what());
  return 1;
}
