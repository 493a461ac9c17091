// One rank of a world that init() made, with every hook of a reducer, whose buckets leave in the plan's order and in
// any: a line for each, with a hash of what it left. Then a loop whose gradients drift, and gradients of the rank's own
// memory. Or what memory passes take.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <grad/all_hooks.hpp>
#include <grad/reducer/drifting.hpp>
#include <grad/rounds.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>
#include <tutti/grad/broadcast_parameters.hpp>

#include "process/programs/options.hpp"

namespace {

void tell(int hook, const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037u;
  for (const float x : values) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  std::printf("hook %d hash %016llx.\n", hook, static_cast<unsigned long long>(hash));
}

long kib(const char* what) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (long n; word == what && file >> n) return n;
  return 0;
}

/// The most memory that passes over 32 MiB of gradients in buckets of 2 MiB held at a time.
template <class Hook>
void tell_peak(tutti::communicator<>& world, const char* name, std::size_t in_flight, Hook hook) {
  constexpr std::size_t count = std::size_t{1} << 19;
  std::ofstream("/proc/self/clear_refs") << 5 << std::flush;  // the peak begins anew
  const long before = kib("VmRSS:");
  {
    const std::vector<tutti::grad::parameter_shape> list(16, {"w", count});
    tutti::grad::reducer r{world, list, {.limits = {count * 4, count * 4}, .in_flight = in_flight}, std::move(hook)};
    for (int pass = 0; pass < 2; ++pass) {
      auto begun = r.begin(static_cast<double>(1 + world.rank()));
      for (std::size_t i = list.size(); i-- > 0;) {
        const std::span<float> g = r.template gradient<float>(i);
        std::fill(g.begin(), g.end(), 1.0F);
        begun.ready(i);
      }
      (void)tutti::sync_wait(world, begun.finish());
    }
  }
  std::printf("peak of %s %ld KiB.\n", name, kib("VmHWM:") - before);
}

/// Gradients of memory of one's own, on some ranks or on all, give the bits of those in the arena.
void check_own_memory(tutti::communicator<>& world) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 6; ++i) {
    auto r = rounds::random_round(random, world.size(), i % 2 == 0 ? 200 : 10);
    r.options.in_flight = static_cast<std::size_t>(i) % 3;
    tutti::grad::reducer reducer{world, r.shapes, r.options};
    const auto expected = rounds::run(r, world, reducer);
    for (const auto lie : {rounds::lie::elsewhere, rounds::lie::either})
      if (rounds::run(r, world, reducer, lie) != expected) throw std::runtime_error("other bits of own memory");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const tutti_test::words words{argc, argv};
  auto world = tutti::init(tutti_test::options_from(words));
  if (words.has("memory")) {
    tell_peak(world, "sum", 0, tutti::grad::sum_hook{});
    tell_peak(world, "two", 2, tutti::grad::compress_hook<tutti::bfloat16>{});
    return 0;
  }
  using all_hooks::in_any_order;
  for (const auto which : all_hooks::kinds)
    tell(static_cast<int>(which),
         in_any_order([&](auto how, auto marks) { return all_hooks::mean(world, which, how, marks); }));
  for (const auto which : {all_hooks::unscaled::adasum, all_hooks::unscaled::mean})
    tell(static_cast<int>(all_hooks::kinds.size()) + static_cast<int>(which),
         in_any_order([&](auto how, auto marks) { return all_hooks::as_they_are(world, which, how, marks); }));
  for (const auto order : {tutti::grad::launch_order::planned, tutti::grad::launch_order::ready})
    (void)drifting::run(world, {.order = order, .replan = tutti::grad::replan::on_drift});
  check_own_memory(world);
  std::vector<float> start(1000, static_cast<float>(world.rank() + 1));
  tutti::grad::broadcast_parameters(world, std::vector<std::span<float>>{start, std::span{start}.first(0)});
  if (start[999] != 1) throw std::runtime_error("broadcast_parameters");
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
