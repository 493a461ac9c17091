#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/direct.hpp>
#include <tutti/algo/direct_gather.hpp>
#include <tutti/algo/staging.hpp>

#include <algo/lanes.hpp>

namespace {

using lanes::expect;
using tutti::algo::board;

/// As if every rank had a core of its own, however few there are. Buffers are staged: what is mapped needs no choice.
class roomy_transport : public lanes::staging_transport {
 public:
  using staging_transport::staging_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return 1; }
};

/// The same, but one rank has no memory for long walks.
class poor_transport : public roomy_transport {
 public:
  using roomy_transport::roomy_transport;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if (rank() == 1 && bytes >= board::long_walk) throw tutti::error{{tutti::errc::out_of_resources}, "full"};
    return roomy_transport::allocate(bytes);
  }
};

/// Sums of messages of many lengths, some of which choose the staging.
template <class Rank>
void check_sums(Rank& me) {
  const auto n = static_cast<std::uint64_t>(me.size());
  for (const std::size_t count : {1u, 100u, 1000u, 5000u, 16384u, 40000u, 100001u}) {
    std::vector<std::uint64_t> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = i * static_cast<std::uint64_t>(me.number() + 1);
    me.run([&](auto l) {
      const tutti::all_reduce_args a{tutti::erase_type(std::span<const std::uint64_t>(data)),
                                     tutti::erase_type(std::span(data)), tutti::erase_type<std::uint64_t>(tutti::sum)};
      return tutti::algo::direct_all_reduce(l, me.board(), a);
    });
    for (std::size_t i = 0; i < count; ++i)
      if (data[i] != i * n * (n + 1) / 2) return expect(false, "element", i);
  }
}

TEST_CASE("staging: every way of it carries messages of every length, also after another way") {
  constexpr board::staging ways[] = {{board::slot_bytes, tutti::stores::ordinary},
                                     {board::slot_bytes, tutti::stores::streaming},
                                     {board::long_walk, tutti::stores::ordinary},
                                     {board::long_walk, tutti::stores::streaming}};
  for (const int n : {2, 3}) {
    lanes::run<roomy_transport>(n, [&](auto& me) {
      check_sums(me);  // chooses, and so has room for long walks
      expect(!me.board().choice_due(std::size_t{1} << 20), "the choice is due again at once");
      for (const auto& way : ways) {
        me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.board()); });
        me.board().use(way);
        check_sums(me);
      }
    });
  }
}

TEST_CASE("staging: where one rank has no memory for long walks, all stay with what they have") {
  lanes::run<poor_transport>(3, [](auto& me) {
    check_sums(me);
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.board()); });
    std::byte* first = me.board().slot(0, 0);
    expect(me.board().slot(0, 1) == first + board::slot_bytes, "the slots moved");
  });
}

TEST_CASE("staging: the choice is due for long messages, again after some GiB, and not for short ones") {
  board b;
  CHECK_FALSE(b.choice_due(100));
  CHECK(b.choice_due(std::size_t{1} << 20));
  CHECK_FALSE(b.choice_due(std::size_t{1} << 20));
  CHECK_FALSE(b.choice_due(std::size_t{8} << 30));
  CHECK(b.choice_due(std::size_t{1} << 20));
}

}  // namespace
