#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <vector>

#include "support/grid.hpp"

// issue::order: bits that depend on nothing but the ranks' elements.

namespace {
using tutti::algorithm;
using tutti::reduction_order;

/// Values of very different magnitudes, of elements from `first` on: every other order has other bits.
template <class T>
std::vector<T> values(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t h =
        (first + i + 1) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9;
    v[i] = T(static_cast<float>(static_cast<int>((h >> 32) % 2001) - 1000) * ((h >> 20) % 2 != 0 ? 1.0f : 0.0009765f));
  }
  return v;
}

/// The fold from rank 0 on: in float for narrow types, rounded once.
template <class T>
std::vector<T> folded(int size, std::size_t count, std::size_t first = 0) {
  using wide = std::conditional_t<sizeof(T) == 2, float, T>;
  std::vector<wide> sums(count);
  for (int r = 0; r < size; ++r) {
    const auto v = values<T>(r, count, first);
    for (std::size_t i = 0; i < count; ++i)
      sums[i] = r == 0 ? static_cast<wide>(v[i]) : sums[i] + static_cast<wide>(v[i]);
  }
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = T(sums[i]);
  return out;
}

template <class T>
void same(std::span<const T> got, std::span<const T> expected, const char* what) {
  if (std::memcmp(got.data(), expected.data(), expected.size_bytes()) != 0) throw std::logic_error(what);
}

template <class T, class World>
void check(World& world) {
  const auto n = static_cast<std::size_t>(world.size());
  for (const std::size_t count : {std::size_t{1}, std::size_t{40}, std::size_t{3001}, std::size_t{70003}}) {
    const auto expected = folded<T>(world.size(), count);
    auto v = values<T>(world.rank(), count);
    world.all_reduce(v, tutti::sum, {.order = reduction_order::rank}).wait();
    same<T>(v, expected, "all_reduce");

    v = values<T>(world.rank(), count);
    const std::vector<std::span<T>> pieces{std::span{v}.first(count / 3), std::span{v}.subspan(count / 3)};
    world.all_reduce_coalesced(pieces, tutti::sum, {.order = reduction_order::rank}).wait();
    same<T>(v, expected, "all_reduce_coalesced");

    const auto wide = values<T>(world.rank(), count * n);
    std::vector<T> block(count);
    world.reduce_scatter(wide, block, tutti::sum, {.order = reduction_order::rank}).wait();
    same<T>(block, folded<T>(world.size(), count, count * static_cast<std::size_t>(world.rank())), "reduce_scatter");
  }
}

}  // namespace

TEST_CASE("order: sums from rank 0 on have the same bits in memory, over messages, whole or in pieces") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 8}, {1, 3, 8})) {
    CAPTURE(size);
    tutti::run_threads(size, [](tutti::communicator<tutti::threads>& world) {
      check<float>(world);
      check<tutti::bfloat16>(world);
      check<tutti::float16>(world);
      check<double>(world);
    });
    for (const auto memory : {tutti::sim_memory::separate, tutti::sim_memory::shared})
      tutti::run_sim(size, {.seed = 3, .memory = memory}, [](tutti::communicator<tutti::sim>& world) {
        check<float>(world);
        check<tutti::bfloat16>(world);
      });
  }
}

TEST_CASE("order: both algorithms that have it can be asked for, others and other collectives are refused by name") {
  tutti::run_sim(3, {.seed = 1, .memory = tutti::sim_memory::shared}, [](tutti::communicator<tutti::sim>& world) {
    const auto expected = folded<float>(3, 1000);
    for (const algorithm via : {algorithm::direct, algorithm::pairwise}) {
      auto v = values<float>(world.rank(), 1000);
      world.all_reduce(v, tutti::sum, {.via = via, .order = reduction_order::rank}).wait();
      same<float>(v, expected, "asked for");
    }
    std::vector<float> v(10);
    try {
      (void)world.all_reduce(v, tutti::sum, {.via = algorithm::ring, .order = reduction_order::rank});
      throw std::logic_error("accepted");
    } catch (const tutti::usage_error& e) {
      if (std::string{e.what()}.find("reduction_order::rank needs algorithm direct or pairwise, and ring") ==
          std::string::npos)
        throw std::logic_error(e.what());
    }
    world.broadcast(v, 0, {.order = reduction_order::rank}).wait();  // has none
    auto prepared = world.prepare().all_reduce(v, tutti::sum, {.order = reduction_order::rank});
    prepared.start().wait();
  });
  tutti::run_sim(2, {.seed = 1, .memory = tutti::sim_memory::separate}, [](tutti::communicator<tutti::sim>& world) {
    std::vector<float> v(10), out(10);
    try {
      (void)world.reduce(v, out, 0, tutti::sum, {.order = reduction_order::rank});
      throw std::logic_error("accepted");
    } catch (const tutti::usage_error& e) {
      if (std::string{e.what()}.find("reduce on rank ") == std::string::npos) throw std::logic_error(e.what());
    }
  });
}
