#include <doctest/doctest.h>

#include <cstddef>

#include <tutti/algo/selection/table.hpp>

namespace {

using tutti::algorithm;
using namespace tutti::algo;

constexpr std::uint32_t all_reduce = tuning::id_of("all_reduce");
constexpr problem four(std::size_t bytes, connectivity links = connectivity::messages) { return {links, 4, bytes, 4}; }

constexpr algorithm chosen(const tuning& t, const problem& s) {
  return t.choose<tutti::all_reduce_args>(s, algorithm::halving_doubling);
}

TEST_CASE("table: the first rule that fits counts") {
  tuning t;
  CHECK(chosen(t, four(1)) == algorithm::halving_doubling);
  t.add({all_reduce, connectivity::messages, algorithm::recursive_doubling, 4, 100});
  t.add({all_reduce, connectivity::messages, algorithm::ring, 8, 1000});
  CHECK(chosen(t, four(100)) == algorithm::recursive_doubling);
  CHECK(chosen(t, four(101)) == algorithm::ring);
  CHECK(chosen(t, {connectivity::messages, 5, 100, 4}) == algorithm::ring);
  CHECK(chosen(t, four(1001)) == algorithm::halving_doubling);
  CHECK(chosen(t, {connectivity::messages, 9, 1, 4}) == algorithm::halving_doubling);
  CHECK(chosen(t, four(1, connectivity::memory)) == algorithm::halving_doubling);
  CHECK(t.choose<tutti::reduce_scatter_args>(four(1), algorithm::ring) == algorithm::ring);
}

TEST_CASE("table: a rule for what cannot run is passed over") {
  tuning t;
  t.add({all_reduce, connectivity::messages, algorithm::direct});
  t.add({all_reduce, connectivity::messages, algorithm::ring});
  CHECK(chosen(t, four(1)) == algorithm::ring);
}

TEST_CASE("table: tables that differ have different hashes") {
  const tuning::rule base{all_reduce, connectivity::messages, algorithm::ring, 4, 100};
  const auto hash_of = [](auto... rules) {
    tuning t;
    (t.add(rules), ...);
    return t.hash();
  };
  const auto changed = [&](auto change) {
    tuning::rule r = base;
    change(r);
    return hash_of(r);
  };
  CHECK(hash_of() == 0);
  CHECK(hash_of(base) == hash_of(base));
  for (const auto other :
       {hash_of(), hash_of(base, base), changed([](auto& r) { r.ranks = 5; }), changed([](auto& r) { r.bytes = 101; }),
        changed([](auto& r) { r.links = connectivity::memory; }),
        changed([](auto& r) { r.via = algorithm::recursive_doubling; }), changed([](auto& r) { ++r.collective; })})
    CHECK(other != hash_of(base));
}

TEST_CASE("table: a full table takes no more") {
  tuning t;
  for (std::size_t i = 0; i < tuning::most_rules; ++i) CHECK(t.add({}));
  CHECK_FALSE(t.add({}));
  CHECK(t.size() == tuning::most_rules);
}

static_assert(tunable::has("broadcast", algorithm::chain));
static_assert(!tunable::has("broadcast", algorithm::ring));
static_assert(!tunable::has("broadcast", algorithm::automatic));
static_assert(!tunable::has("barrier"));

}  // namespace
