#include <doctest/doctest.h>

#include <array>
#include <cstdint>

#include <tutti/transport/sim/random.hpp>

namespace {

using tutti::sim_random;

TEST_CASE("sim_random gives the published numbers of SplitMix64") {
  sim_random r{1234567};
  for (const std::uint64_t wanted :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u, 16408922859458223821u})
    CHECK(r.next() == wanted);
}

TEST_CASE("sim_random reaches every choice, and stays in range") {
  sim_random r{3};
  std::array<int, 5> seen{};
  int ones = 0, hits = 0;
  for (int i = 0; i < 1000; ++i) {
    ++seen[static_cast<std::size_t>(r.below(5))];
    hits += r.one_in(4);
    ones += r.one_of({0, 0, 0, 1}) == 1;
  }
  for (const int n : seen) CHECK(n > 100);
  CHECK(hits > 150);
  CHECK(hits < 350);
  CHECK(ones > 150);
  CHECK(ones < 350);
  CHECK(r.below(1) == 0);
  CHECK(r.one_in(1));
}

}  // namespace
