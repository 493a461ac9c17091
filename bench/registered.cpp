// Measures collectives in ordinary, registered and allocated memory, in turns, and what registering costs.
//
//   tutti-run -n 2 -- bench-registered [KiB ...]
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <tutti/os/memory.hpp>
#include <tutti/tutti.hpp>

namespace {

using clock_type = std::chrono::steady_clock;
using numbers = std::span<float>;

double microseconds_since(clock_type::time_point start) {
  return std::chrono::duration<double, std::micro>(clock_type::now() - start).count();
}
double median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
  return of[of.size() / 2];
}

/// Input and output of one kind.
struct pair {
  numbers in, out;
};

constexpr std::array names{"all_reduce", "broadcast", "all_gather", "reduce_scatter"};
void call(tutti::communicator<>& world, std::size_t which, const pair& p) {
  const std::size_t block = p.in.size() / static_cast<std::size_t>(world.size());
  const std::size_t all = block * static_cast<std::size_t>(world.size());
  if (which == 0) world.all_reduce(p.in).wait();
  if (which == 1) world.broadcast(p.in, 0).wait();
  if (which == 2) world.all_gather(p.in.first(block), p.out.first(all)).wait();
  if (which == 3) world.reduce_scatter(p.in.first(all), p.out.first(block)).wait();
}

/// Returns the median time of the slowest rank, in us, for each kind. The kinds take turns.
std::vector<double> measure(tutti::communicator<>& world, std::size_t which, const std::vector<pair>& kinds) {
  const std::size_t bytes = kinds[0].in.size_bytes();
  const std::size_t rounds = std::clamp<std::size_t>((std::size_t{1} << 30) / bytes, 15, 201);
  std::vector<std::vector<double>> times(kinds.size(), std::vector<double>(rounds));
  for (std::size_t i = 0; i < rounds + 3; ++i)
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      std::fill(kinds[k].in.begin(), kinds[k].in.end(), 0.0F);  // as a program that has just computed it
      world.barrier().wait();
      const auto start = clock_type::now();
      call(world, which, kinds[k]);
      if (i >= 3) times[k][i - 3] = microseconds_since(start);
    }
  std::vector<double> medians;
  for (std::vector<double>& t : times) {
    world.all_reduce(t, tutti::max).wait();
    medians.push_back(median(t));
  }
  return medians;
}

void measure_registration(tutti::communicator<>& world, std::size_t bytes) {
  std::vector<double> begins, ends;
  for (int i = 0; i < 11; ++i) {
    std::vector<float> data(bytes / sizeof(float), 1);
    world.barrier().wait();
    const auto start = clock_type::now();
    auto held = world.register_buffer(data);
    begins.push_back(microseconds_since(start));
    world.all_reduce(data, tutti::max).wait();
    const auto stop = clock_type::now();
    held.release();
    ends.push_back(microseconds_since(stop));
  }
  const double mib = static_cast<double>(bytes) / (1 << 20);
  if (world.rank() == 0)
    std::printf("| %s | %.0f | %.0f | %.0f |\n", tutti::os::format_bytes(bytes).c_str(), begins[0] / mib,
                median(begins) / mib, median(ends) / mib);
}

}  // namespace

int main(int argc, char** argv) {
  auto world = tutti::init();
  std::vector<std::size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(static_cast<std::size_t>(std::atol(argv[i])) << 10);
  if (sizes.empty()) sizes = {64U << 10, 512U << 10, 4U << 20, 16U << 20, 64U << 20};
  const auto say = [&](const char* text) {
    if (world.rank() == 0) std::printf("%s", text);
  };
  say("| us per MiB | first registration | median | end |\n|---|---|---|---|\n");
  for (const std::size_t bytes : sizes) measure_registration(world, bytes);
  say("\n| collective | size | ordinary us | registered us | allocated us |\n|---|---|---|---|---|\n");
  for (std::size_t which = 0; which < names.size(); ++which)
    for (const std::size_t bytes : sizes) {
      const std::size_t n = bytes / sizeof(float);
      std::vector<float> ordinary(2 * n), mine(2 * n);
      const auto held = world.register_buffer(mine);
      const auto allocated = world.allocate<float>(2 * n);
      const auto halves = [n](numbers all) { return pair{all.first(n), all.subspan(n)}; };
      const auto us = measure(world, which, {halves(ordinary), halves(mine), halves(allocated.span())});
      if (world.rank() == 0)
        std::printf("| %s | %s | %.0f | %.0f | %.0f |\n", names[which], tutti::os::format_bytes(bytes).c_str(), us[0],
                    us[1], us[2]);
    }
}
