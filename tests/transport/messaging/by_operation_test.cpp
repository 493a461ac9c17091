#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <vector>

#include <tutti/transport/messaging/by_operation.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace {

struct message : tutti::detail::chained<message> {
  std::uint64_t tag;
  int number;
  message(std::uint64_t t, int n) : tag(t), number(n) {}
  friend std::uint64_t tag_of(const message& m) noexcept { return m.tag; }
};
using index = tutti::detail::by_operation<message>;

std::vector<int> numbers(const index& of, std::uint64_t tag) {
  std::vector<int> all;
  for (const message* m = of.first(tag); m; m = index::after(*m)) all.push_back(m->number);
  return all;
}

TEST_CASE("by_operation: those of one operation, and those of one tag, in their order") {
  index all;
  CHECK(all.empty());
  CHECK(all.first(7) == nullptr);
  const std::uint64_t one = tutti::tag::make(3, 5, 1), other = tutti::tag::make(3, 5, 2),
                      next = tutti::tag::make(3, 6, 1), users = tutti::tag::point_to_point(3, 5),
                      another = tutti::tag::point_to_point(3, 6);
  message a{one, 1}, b{other, 2}, c{one, 3}, d{next, 4}, e{users, 5}, f{another, 6}, g{users, 7};
  for (message* m : {&a, &b, &c, &d, &e, &f, &g}) all.push_back(*m);
  CHECK(numbers(all, other) == std::vector<int>{1, 2, 3});
  CHECK(numbers(all, next) == std::vector<int>{4});
  CHECK(numbers(all, users) == std::vector<int>{5, 7});
  CHECK(all.find(one) == &a);
  CHECK(all.find(one, 1) == &c);
  CHECK(all.find(one, 2) == nullptr);
  CHECK(all.number_of(one) == 2);
  CHECK(all.number_of(other) == 1);
  all.remove(a);
  CHECK(all.find(one) == &c);
  all.remove(c);
  all.remove(b);
  CHECK(numbers(all, one).empty());
  CHECK(all.find(users, 1) == &g);
  all.clear();
  CHECK(all.empty());
  CHECK(all.find(users) == nullptr);
}

TEST_CASE("by_operation: any number, come and gone in any order") {
  index all;
  std::deque<message> some;
  std::list<message*> here;
  std::uint64_t random = 1;
  const auto next = [&](std::uint64_t n) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % n;
  };
  for (int round = 0; round < 20000; ++round) {
    if (here.empty() || next(100) < (round < 10000 ? 60U : 40U)) {
      const auto sequence = next(1000);
      some.emplace_back(next(2) == 0 ? tutti::tag::make(0, sequence, 0)
                                     : tutti::tag::point_to_point(1, static_cast<std::uint32_t>(sequence)),
                        round);
      all.push_back(some.back());
      here.push_back(&some.back());
    } else {
      auto at = here.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(next(here.size() < 20 ? here.size() : 20)));
      all.remove(**at);
      here.erase(at);
    }
    if (round % 1000 != 0) continue;
    for (std::uint64_t s = 0; s < 1000; ++s)
      for (const std::uint64_t t :
           {tutti::tag::make(0, s, 0), tutti::tag::point_to_point(1, static_cast<std::uint32_t>(s))}) {
        std::vector<int> expected;
        for (const message* m : here)
          if (m->tag == t) expected.push_back(m->number);
        if (numbers(all, t) != expected) FAIL("another chain in round ", round);
      }
  }
  while (!here.empty()) {
    all.remove(*here.front());
    here.pop_front();
  }
  CHECK(all.empty());
}

}  // namespace
