#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <type_traits>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/config.hpp>
#include <tutti/os/memory.hpp>

#include <conformance/collectives.hpp>
#include <conformance/every_reduction.hpp>
#include <conformance/large.hpp>
#include <conformance/large_blocks.hpp>
#include <support/grid.hpp>

namespace {

TEST_CASE("threads: every collective, every way, in every type" * doctest::test_suite("grid")) {
  conformance::check_collectives([](int size, auto f) { tutti::run_threads(size, f, std::chrono::seconds(60)); });
}

TEST_CASE("threads: every reduction of every type, by every collective and algorithm, in worlds of every size" *
          doctest::test_suite("grid")) {
  for (const int size : tutti_test::world_sizes())
    tutti::run_threads(
        size,
        [](auto& world) {
          conformance::session<std::remove_reference_t<decltype(world)>> s{world};
          conformance::check_every_reduction(s, tutti_test::reduction_stride(tutti_test::slow ? 9 : 1));
        },
        std::chrono::seconds(60));
}

TEST_CASE("threads: more elements than an int can count" * doctest::test_suite("grid")) {
  if (tutti::detail::address_sanitizer || tutti::detail::thread_sanitizer) {
    MESSAGE("skipped: under a sanitizer this takes minutes, and twice the memory");
    return;
  }
  if (tutti_test::reduced()) {
    MESSAGE("skipped: the reduced grid has no large counts");
    return;
  }
  constexpr std::uint64_t needed = std::uint64_t{6} << 30;
  if (const std::uint64_t free = tutti::os::available_memory(); free < needed) {
    MESSAGE("skipped: " << tutti::os::format_bytes(free) << " of memory are available, but "
                        << tutti::os::format_bytes(needed) << " are needed");
    return;
  }
  using enum tutti::algorithm;
  tutti::run_threads(
      2, [](auto& world) { conformance::check_large(world, {automatic, ring}); }, std::chrono::seconds(60));
  tutti::run_threads(
      2,
      [](auto& world) {
        conformance::large_blocks blocks{world};
        blocks.check_moves(automatic, automatic, automatic, automatic);
        blocks.check_moves(tree, ring, linear, pairwise);
        blocks.check_reductions(automatic, automatic, automatic);
        blocks.check_reductions(ring, tree, chain);
      },
      std::chrono::seconds(60));
}

}  // namespace
