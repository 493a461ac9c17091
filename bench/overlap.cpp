// Measures the part of a large all_reduce that computation hides. Ranks compute after it, while it is in flight, and
// while a thread or polls drive it. Every rank computes for about as long as the all_reduce takes.
//
//   tutti-run -n 2 -- bench-overlap [MiB ...]
//
// $OVERLAP_ADDRESS: the address of this rank among emulated machines (see docs/results/README.md).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <tutti/async/progress_thread.hpp>
#include <tutti/tutti.hpp>

namespace {

using clock_type = std::chrono::steady_clock;
constexpr int rounds = 7;  // odd, for the median

double milliseconds_since(clock_type::time_point start) {
  return std::chrono::duration<double, std::milli>(clock_type::now() - start).count();
}

/// A fixed amount of computation, in cache. It takes longer if another thread uses the core.
class work {
 public:
  /// Returns the number of pieces that take about `ms` milliseconds.
  [[nodiscard]] long pieces_for(double ms) {
    constexpr long pieces = 2000;
    double fastest = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto start = clock_type::now();
      run(pieces);
      fastest = std::min(fastest, milliseconds_since(start));
    }
    return std::max(1L, static_cast<long>(static_cast<double>(pieces) * ms / fastest));
  }
  void run(long pieces) noexcept {
    for (long p = 0; p < pieces; ++p)
      for (float& x : values_) x = x * 0.999F + 0.001F;
    kept_ = values_[0];
  }

 private:
  std::vector<float> values_ = std::vector<float>(4096, 0.5F);
  volatile float kept_ = 0;
};

/// Returns the time of f() on the slowest rank, in milliseconds.
template <class F>
double timed(tutti::communicator<>& world, F f) {
  world.barrier().wait();
  const auto start = clock_type::now();
  f();
  return world.all_reduce(milliseconds_since(start), tutti::max).wait();
}

double median(std::vector<double> of) {
  std::ranges::nth_element(of, of.begin() + rounds / 2);
  return of[rounds / 2];
}

void measure(tutti::communicator<>& world, std::size_t mib) {
  std::vector<float> data((mib << 20) / sizeof(float), 1.0F);
  work compute;
  const auto wait = [&] { world.all_reduce(data).wait(); };
  std::vector<double> first;
  for (int i = 0; i < rounds; ++i) first.push_back(timed(world, wait));
  const long pieces = world.broadcast(compute.pieces_for(median(first)), 0).wait();

  const auto only_compute = [&] { compute.run(pieces); };
  const auto one_after_the_other = [&] {
    wait();
    compute.run(pieces);
  };
  const auto at_once = [&] {
    auto pending = world.all_reduce(data);
    compute.run(pieces);
    pending.wait();
  };
  const auto with_polls = [&] {
    constexpr long parts = 200;
    auto pending = world.all_reduce(data);
    for (long i = 0; i < parts; ++i) {
      compute.run(pieces * (i + 1) / parts - pieces * i / parts);
      world.engine().poll();
    }
    pending.wait();
  };
  // Every round measures all variants, so that other load of the machine affects all of them.
  std::vector<double> communication, computation, after, nobody, polls, thread_after, thread, awake_after, awake;
  for (int i = 0; i < rounds; ++i) {
    communication.push_back(timed(world, wait));
    computation.push_back(timed(world, only_compute));
    after.push_back(timed(world, one_after_the_other));
    nobody.push_back(timed(world, at_once));
    polls.push_back(timed(world, with_polls));
    {
      const tutti::progress_thread driving{world.engine()};
      thread_after.push_back(timed(world, one_after_the_other));
      thread.push_back(timed(world, at_once));
    }
    const tutti::progress_thread driving{world.engine(), tutti::wait_policy::own_core()};
    awake_after.push_back(timed(world, one_after_the_other));
    awake.push_back(timed(world, at_once));
  }
  if (world.rank() != 0) return;
  const double a = median(communication), c = median(computation);
  const auto show = [&](const char* who, double one, double both) {
    std::printf("%4zu %-16s %10.2f %10.2f %10.2f %10.2f %7.0f %%\n", mib, who, a, c, one, both,
                100 * (a + c - both) / std::min(a, c));
  };
  show("nobody", median(after), median(nobody));
  show("200 polls", median(after), median(polls));
  show("progress_thread", median(thread_after), median(thread));
  show("the same, awake", median(awake_after), median(awake));
}

}  // namespace

int main(int argc, char** argv) try {
  tutti::init_options options;
  if (const char* address = std::getenv("OVERLAP_ADDRESS")) {
    options.interface = address;
    options.network = tutti::exposure::insecure;  // all emulated machines are on this one
  }
  auto world = tutti::init(options);
  if (world.rank() == 0)
    std::printf("%4s %-16s %10s %10s %10s %10s %9s\n%4s %-16s %10s %10s %10s %10s %9s\n", "MiB", "driven by",
                "all_reduce", "compute", "after", "meanwhile", "hidden", "", "", "ms", "ms", "ms", "ms", "");
  for (int i = 1; i < std::max(argc, 2); ++i) measure(world, argc > 1 ? std::stoul(argv[i]) : 25);
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench-overlap: %s\n", e.what());
  return 1;
}
