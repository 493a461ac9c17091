#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <tutti/bootstrap/rendezvous/roster.hpp>

namespace {

struct rank {
  std::string machine;
  std::string cpus;
  std::uint32_t limit = 0;
};

tutti::roster roster_of(const std::vector<rank>& ranks) {
  std::vector<std::vector<std::byte>> claims;
  for (const rank& r : ranks) {
    auto c = tutti::roll_call_claim::of_this_process(static_cast<int>(claims.size()), static_cast<int>(ranks.size()),
                                                     r.machine);
    c.cpus = r.cpus;
    c.cpu_limit = r.limit;
    claims.push_back(tutti::encode(c));
  }
  return tutti::make_roster(claims);
}

TEST_CASE("roster: ranks that are bound to a CPU each have as many as there are ranks") {
  const auto all = roster_of({{"a", "\x01"}, {"a", "\x02"}, {"b", "\x0f"}, {"a", std::string("\0\x80", 2)}});
  for (const int r : {0, 1, 3}) {
    CHECK(all[static_cast<std::size_t>(r)].local_cpus == 3);
    CHECK(tutti::ranks_per_core(all[static_cast<std::size_t>(r)]) == 1);
  }
  CHECK(all[2].local_cpus == 4);
  CHECK(tutti::ranks_per_core(all[2]) == 0.25);
}

TEST_CASE("roster: ranks that share CPUs share them, and a control group limits them all") {
  CHECK(roster_of({{"a", "\x03"}, {"a", "\x03"}, {"a", "\x03"}})[1].local_cpus == 2);
  CHECK(roster_of({{"a", "\xff", 3}, {"a", "\xff"}})[1].local_cpus == 3);
}

TEST_CASE("roster: where a rank cannot tell its CPUs, nobody counts on them") {
  const auto all = roster_of({{"a", "\x01"}, {"a", ""}});
  CHECK(all[0].local_cpus == 0);
  CHECK(tutti::ranks_per_core(all[0]) > 0);
}

TEST_CASE("roster: this process claims the CPUs that it may run on") {
  const auto all = tutti::make_roster({tutti::encode(tutti::roll_call_claim::of_this_process(0, 1))});
  CHECK(all[0].local_cpus == tutti::os::usable_cpus());
}

}  // namespace
