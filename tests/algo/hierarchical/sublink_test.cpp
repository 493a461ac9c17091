#include <doctest/doctest.h>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tutti/algo/hierarchical/sublink.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/async/scratch_pool.hpp>
#include <tutti/transport/concept.hpp>

#include <algo/links.hpp>

namespace {

using tutti::algo::sublink;

struct transfer {
  char way;
  int peer;
  std::uint64_t step;
  const std::byte* data;
  std::size_t bytes;
  friend bool operator==(const transfer&, const transfer&) = default;
};
struct inline_path {
  static bool await_ready() noexcept { return true; }
  static void await_suspend(std::coroutine_handle<tutti::routine::promise_type>) noexcept {}
  static void await_resume() noexcept {}
};
/// Rank 4 of nine; writes down what it is asked for.
struct diary {
  std::vector<transfer>* pages;
  tutti::scratch_pool* pool;
  static int rank() noexcept { return 4; }
  static int size() noexcept { return 9; }
  inline_path send(int peer, std::uint64_t step, std::span<const std::byte> out) const {
    pages->push_back({'s', peer, step, out.data(), out.size()});
    return {};
  }
  inline_path recv(int peer, std::uint64_t step, std::span<std::byte> in) const {
    pages->push_back({'r', peer, step, in.data(), in.size()});
    return {};
  }
  [[nodiscard]] static tutti::errc refuse(tutti::status why) noexcept { return why.code; }
  [[nodiscard]] tutti::scratch_pool& temporary() const noexcept { return *pool; }
};
static_assert(tutti::message_link<diary> && tutti::message_link<sublink<diary>>);

TEST_CASE("sublink: members have numbers of their own, a leader may stand in for one, and steps begin elsewhere") {
  std::vector<transfer> pages;
  tutti::scratch_pool pool;
  const std::vector<int> members{7, 4, 0, 8};
  std::array<std::byte, 5> data{};
  const auto use = [&](const auto& link, int peer, std::uint64_t step) {
    pages.clear();
    link.send(peer, step, std::span{data}.first(3));
    link.recv(peer, step, std::span{data}.last(2));
    REQUIRE(pages.size() == 2);
    CHECK(pages[0] == transfer{'s', pages[1].peer, pages[1].step, data.data(), 3});
    CHECK(pages[1] == transfer{'r', pages[0].peer, pages[0].step, data.data() + 3, 2});
    return std::pair{pages[0].peer, pages[0].step};
  };
  const diary all{&pages, &pool};
  const sublink some(all, members, 1, 1000);
  CHECK(some.rank() == 1);
  CHECK(some.size() == 4);
  for (int peer = 0; peer < 4; ++peer)
    CHECK(use(some, peer, 6) == std::pair{members[static_cast<std::size_t>(peer)], std::uint64_t{1006}});
  const sublink with_deputy(all, members, 1, 0, 2, 5);
  CHECK(use(with_deputy, 2, 1).first == 5);
  CHECK(use(with_deputy, 3, 1).first == 8);
  // A link of a link: numbers and steps are those of the one above it.
  const std::vector<int> inner{3, 1};
  const sublink both(some, inner, 1, 20);
  CHECK(use(both, 0, 3) == std::pair{8, std::uint64_t{1023}});
  CHECK(both.refuse({tutti::errc::out_of_resources}) == tutti::errc::out_of_resources);
  CHECK(&both.temporary() == &pool);
}

TEST_CASE("sublink: two groups of a world, and two phases of one operation, do not take each other's messages") {
  links::run(5, [](auto& me) {
    const std::vector<int> even{4, 0, 2}, odd{1, 3};
    const auto& group = me.number() % 2 == 0 ? even : odd;
    int place = 0;
    while (group[static_cast<std::size_t>(place)] != me.number()) ++place;
    me.run([&](auto link) {
      return [](auto l, const std::vector<int>& of, int at) -> tutti::routine {
        const int n = static_cast<int>(of.size()), right = (at + 1) % n, left = (at + n - 1) % n;
        for (const std::uint64_t first : {1U << 20, 0U}) {
          const sublink ring(l, of, at, first);
          const auto mine = static_cast<std::uint64_t>(l.rank()) + first;
          std::uint64_t got = 99;
          auto sending = ring.send(right, 7, std::as_bytes(std::span{&mine, 1}));
          co_await ring.recv(left, 7, std::as_writable_bytes(std::span{&got, 1}));
          co_await sending;
          links::expect(got == static_cast<std::uint64_t>(of[static_cast<std::size_t>(left)]) + first, "it got", got);
        }
      }(link, group, place);
    });
  });
}

}  // namespace
