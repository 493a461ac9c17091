#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// More elements than an int can count: 4 GiB of memory for a world of two.
template <class World>
void check_large(World& world, tutti::algorithm via) {
  constexpr std::size_t count = (std::size_t{1} << 31) + 3;
  session<World> s{world, level::full};
  const which c = s.name("all_reduce", count, "uint8", via);
  std::vector<std::uint8_t> v(count, static_cast<std::uint8_t>(world.rank() + 1));
  const std::size_t marks[] = {0, std::numeric_limits<std::int32_t>::max(), count / 2 - 1, count / 2, count - 1};
  for (const std::size_t i : marks) v[i] = static_cast<std::uint8_t>(10 * (world.rank() + 1));
  world.all_reduce(v, tutti::sum, {.via = via}).wait();
  const int n = world.size() * (world.size() + 1) / 2;
  for (const std::size_t i : marks) {
    expect(v[i] == 10 * n, c, "element " + std::to_string(i) + " is " + std::to_string(v[i]));
    v[i] = static_cast<std::uint8_t>(n);
  }
  expect_equal(c, std::span{v}, [&](std::size_t) { return static_cast<std::uint8_t>(n); });
}

}  // namespace conformance
