#include <doctest/doctest.h>

#include <barrier>
#include <vector>

#include <tutti/algo/shm/group/ticket_lock.hpp>

#include <algo/links.hpp>

namespace {

using tutti::algo::ticket_lock;

/// Two ticket locks, one behind the other; a routine that may wait for a message between them.
template <class Link>
tutti::routine pass(Link link, ticket_lock& first, ticket_lock& second, std::vector<int>& order, int number,
                    bool slow) {
  ticket_lock::ticket one{first, link.link()}, two{second, link.link()};
  co_await one;
  order.push_back(number);
  one.leave();
  one.leave();  // once is enough
  if (slow) co_await link.recv(1 - link.rank(), 0, {});
  co_await two;
  order.push_back(10 + number);
}

TEST_CASE("ticket_lock: operations go through in the order in which they have asked, also those that come later") {
  std::barrier looked{2};  // nobody sends before
  links::run(2, [&](auto& me) {
    ticket_lock first, second;
    std::vector<int> order;
    links::expect(first.is_free(), "somebody is inside");
    auto a = me.start([&](auto link) { return pass(link, first, second, order, 0, true); });
    links::expect(first.is_free() && !second.is_free(), "the first has not left");
    auto b = me.start([&](auto link) { return pass(link, first, second, order, 1, false); });
    links::expect(order == std::vector<int>{0, 1}, "the second waits for the first where that has left");
    // What `a` waits for: a message of its own tag, sent within an operation of the same number at the other rank.
    auto c = me.start([&](auto link) { return pass(link, first, second, order, 2, false); });
    looked.arrive_and_wait();
    tutti::group_link<tutti::threads_transport> of_a{me.link(), me.members(), 1};
    me.run([&](auto) { return [](auto link) -> tutti::routine { co_await link.send(1 - link.rank(), 0, {}); }(of_a); });
    a.wait();
    b.wait();
    c.wait();
    links::expect(order == std::vector<int>{0, 1, 2, 10, 11, 12}, "another order");
    links::expect(first.is_free() && second.is_free(), "somebody is still inside");
  });
}

TEST_CASE("ticket_lock: an operation that fails does not keep the others from failing") {
  links::run(2, [](auto& me) {
    ticket_lock first, second;
    std::vector<int> order;
    auto a = me.start([&](auto link) { return pass(link, first, second, order, 0, true); });
    auto b = me.start([&](auto link) { return pass(link, first, second, order, 1, false); });
    me.abort();
    CHECK_THROWS_AS(a.wait(), tutti::error);
    CHECK_THROWS_AS(b.wait(), tutti::error);
  });
}

}  // namespace
