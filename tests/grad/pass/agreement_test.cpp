#include <doctest/doctest.h>

#include <array>
#include <new>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/reducer.hpp>
#include <utility>
#include <vector>

#include "grad/ranks.hpp"

// Ranks that do not begin alike, or not at all.

namespace {
using ranks::outcome;
using ranks::outcome_of;
using ranks::whole_pass;
using tutti::dtype;
using tutti::errc;
using tutti::grad::bucket_limits;
using tutti::grad::reducer;
using world_t = ranks::communicator;
using shapes = std::vector<tutti::grad::parameter_shape>;

const shapes three{{"a", 5, dtype::f32}, {"layer.b", 7, dtype::f32}, {"c", 3, dtype::f32}};
const tutti::grad::reducer_options apart{{1, 1}};

}  // namespace

TEST_CASE("reducer: ranks with other gradients are found, and both are named on every rank") {
  struct other {
    shapes list;
    bucket_limits limits;
    std::string difference;  // of a rank that is odd, with the names of ranks left out
  };
  const std::array<other, 5> others{{
      {{{"a", 5, dtype::f32}, {"b", 7, dtype::f32}, {"c", 4, dtype::f32}}, {1, 1}, "parameter 2 is c, "},
      {{{"a", 5, dtype::f32}, {"b", 7, dtype::bf16}, {"c", 3, dtype::f32}}, {1, 1}, "parameter 1 is "},
      {{{"a", 5, dtype::f32}, {"b", 7, dtype::f32}, {"c", 3, dtype::f32, 3}}, {1, 1}, "parameter 2 is c, 3 x float32"},
      {{{"a", 5, dtype::f32}, {"b", 7, dtype::f32}}, {1, 1}, " parameters and rank 0 has "},
      {three, {4096, 4096}, " has other options than rank 0"},
  }};
  for (const auto& [list, limits, difference] : others)
    for (const int odd : {0, 1, 3}) {
      const auto all = ranks::outcomes(4, [&](world_t& world) {
        const bool other = world.rank() == odd;
        const outcome o = outcome_of(
            [&] { reducer r{world, other ? list : three, other ? tutti::grad::reducer_options{limits} : apart}; });
        reducer agreed{world, three};  // the communicator is as good as before
        whole_pass(world, agreed);
        if (o.failed != errc::mismatch) throw std::logic_error("not found");
        throw std::runtime_error(o.text);
      });
      for (const auto& o : all) {
        CAPTURE(o.text);
        CHECK(o.says("rank " + std::to_string(odd == 0 ? 1 : odd) + " "));
        CHECK(o.says("rank 0"));
        CHECK(o.says(difference));
      }
    }
}

TEST_CASE("reducer: in a group, ranks with other gradients are named by their ranks in the world") {
  const shapes other{{"a", 6, dtype::f32}};
  const auto all = ranks::outcomes(5, [&](world_t& world) {
    auto group = world.split(world.rank() % 2, -world.rank());  // {4, 2, 0} and {3, 1}
    try {
      reducer r{group, world.rank() == 2 ? other : three};
      if (world.rank() % 2 == 0) throw std::logic_error("not found");
    } catch (const tutti::error& e) {
      if (e.peer() != 2) throw std::logic_error("blamed rank " + std::to_string(e.peer()));
      throw;
    }
  });
  for (const std::size_t r : {std::size_t{1}, std::size_t{3}}) CHECK_MESSAGE(all[r].fine(), all[r].text);
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
    CAPTURE(all[r].text);
    CHECK(all[r].failed == errc::mismatch);
    CHECK(all[r].says("parameter 0 is a, 6 x float32 on rank 2 and a, 5 x float32 on rank 4;"));
  }
}

TEST_CASE("reducer: a type without a mean is refused by name") {
  const auto all = ranks::outcomes(2, [](world_t& world) {
    const shapes wrong{{"a", 1, dtype::f32}, {"mask", 1, dtype::i32}};
    const outcome o = outcome_of([&] { reducer r{world, wrong}; });
    if (!o.usage || !o.says("parameter 1 (mask) is int32")) throw std::runtime_error(o.text);
    const outcome none = outcome_of([&] { reducer r{world, three, {{0, 0}}}; });
    if (!none.usage || !none.says("bucket_limits")) throw std::runtime_error(none.text);
    reducer r{world, three};
    const outcome other = outcome_of([&] { (void)r.gradients<double>(); });
    if (!other.usage || !other.says("float32")) throw std::runtime_error(other.text);
    whole_pass(world, r);
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reducer: where one rank's arguments are wrong, all learn it at once, and the communicator goes on") {
  const auto all = ranks::outcomes(3, [](world_t& world) {
    const shapes wrong{{"mask", 1, dtype::i32}};
    const outcome o = outcome_of([&] { reducer r{world, world.rank() == 1 ? wrong : three}; });
    reducer agreed{world, three};
    whole_pass(world, agreed);
    if (world.rank() == 1 ? !o.usage : o.failed != errc::mismatch) throw std::logic_error("not told");
    throw std::runtime_error(o.text);
  });
  CHECK(all[1].says("parameter 0 (mask) is int32"));
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
    CHECK_MESSAGE(all[r].says("rank 1 could not begin: reducer: parameter 0 (mask) is int32"), all[r].text);
}

TEST_CASE("reducer: ranks that divide by other factors before the sum are found, not left with other bits") {
  const auto all =
      ranks::outcomes(3, [](world_t& world) { reducer r{world, three, {.predivide = world.rank() == 2 ? 4.0 : 2.0}}; });
  for (const auto& o : all) {
    CAPTURE(o.text);
    CHECK(o.failed == errc::mismatch);
    CHECK(o.says("rank 2 "));
    CHECK(o.says("predivide"));
  }
}

namespace {
/// Has no memory on rank 1.
struct poor_world : world_t {
  explicit poor_world(world_t&& w) : world_t(std::move(w)) {}
  template <class T>
  tutti::mapped_array<T> allocate(std::size_t count) {
    if (rank() == 1) throw std::bad_alloc();
    return world_t::allocate<T>(count);
  }
};
}  // namespace

TEST_CASE("reducer: where one rank has no memory for the gradients the others do not wait for it") {
  const auto all = ranks::outcomes(3, [](world_t& world) {
    poor_world group{world.split(0)};
    const outcome o = outcome_of([&] { reducer r{group, three}; });
    group.barrier().wait();  // it goes on
    if (world.rank() == 1 ? !o.says("bad_alloc") : o.failed != errc::out_of_resources) throw std::logic_error(o.text);
    if (world.rank() != 1 && !o.says("rank 1 could not begin")) throw std::logic_error(o.text);
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("reducer: of more ranks than whose weights add up exactly it wants to hear nothing") {
  struct crowd : world_t {
    explicit crowd(world_t&& w) : world_t(std::move(w)) {}
    [[nodiscard]] int size() const noexcept { return 4096; }
  };
  tutti::run_threads(1, [](world_t& world) {
    crowd group{world.split(0)};
    const outcome o = outcome_of([&] { reducer r{group, three}; });
    if (!o.usage || !o.says("more than 4095 ranks")) throw std::logic_error(o.text);
  });
}
