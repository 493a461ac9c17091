// One rank of a world that init() made, with every hook of a reducer, whose buckets leave in the plan's order and in
// any: a line for each, with a hash of what it left. Then a loop whose gradients drift.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

#include <grad/all_hooks.hpp>
#include <grad/drifting.hpp>
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

}  // namespace

int main(int argc, char** argv) try {
  auto world = tutti::init(tutti_test::options_from(tutti_test::words{argc, argv}));
  using all_hooks::in_any_order;
  for (const auto which : all_hooks::kinds)
    tell(static_cast<int>(which),
         in_any_order([&](auto how, auto marks) { return all_hooks::mean(world, which, how, marks); }));
  for (const auto which : {all_hooks::unscaled::adasum, all_hooks::unscaled::mean})
    tell(8 + static_cast<int>(which),
         in_any_order([&](auto how, auto marks) { return all_hooks::as_they_are(world, which, how, marks); }));
  for (const auto order : {tutti::grad::launch_order::planned, tutti::grad::launch_order::ready})
    (void)drifting::run(world, {.order = order, .replan = tutti::grad::replan::on_drift});
  std::vector<float> start(1000, static_cast<float>(world.rank() + 1));
  tutti::grad::broadcast_parameters(world, std::vector<std::span<float>>{start, std::span{start}.first(0)});
  if (start[999] != 1) throw std::runtime_error("broadcast_parameters");
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
