#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <tutti/transport/messaging/unexpected_queue.hpp>

namespace {

using tutti::detail::early_places;
using tutti::detail::unexpected_queue;

TEST_CASE("unexpected_queue: they stay in their order and where they are, and count what they take") {
  early_places places;
  unexpected_queue all{places};
  auto& one = all.add(1, 10, 100);
  auto& two = all.add(2, 20, 0);
  auto& three = all.add(3, 30, 7);
  CHECK(all.held() == unexpected_queue::cost(100) + unexpected_queue::cost(0) + unexpected_queue::cost(7));
  CHECK(one.bytes.size() == 100);
  CHECK(two.bytes.empty());
  CHECK_FALSE(three.complete);
  all.remove(*std::next(all.begin()));
  std::vector<std::uint64_t> tags;
  for (const auto& m : all) tags.push_back(m.tag);
  CHECK(tags == std::vector<std::uint64_t>{1, 3});
  CHECK(&*all.begin() == &one);
  all.remove(*std::prev(all.end()));
  CHECK(std::next(all.begin()) == all.end());
  CHECK(all.held() == unexpected_queue::cost(100));
  all.clear();
  CHECK(all.begin() == all.end());
  CHECK(all.held() == 0);
}

TEST_CASE("unexpected_queue: what one lay in is the next one's, also of another peer, which knows nothing of it") {
  early_places places;
  unexpected_queue all{places}, of_another{places};
  auto& first = all.add(1, 10, 5000);
  first.complete = true;
  const std::byte* const place = first.bytes.data();
  all.remove(*std::prev(all.end()));
  CHECK(places.kept() >= 5000);
  auto& second = of_another.add(2, 20, 5100);
  CHECK(&second == &first);
  CHECK(second.bytes.data() == place);
  CHECK(second.bytes.size() == 5100);
  CHECK(second.tag == 2);
  CHECK(second.call == 20);
  CHECK_FALSE(second.complete);
  CHECK(places.kept() == 0);
}

TEST_CASE("unexpected_queue: the smallest room that is large enough is taken, else a new one in place of the largest") {
  early_places places;
  unexpected_queue all{places};
  const std::byte* const small = all.add(1, 0, 100).bytes.data();
  const std::byte* const middle = all.add(2, 0, 1000).bytes.data();
  const std::byte* const large = all.add(3, 0, 10'000).bytes.data();
  while (all.begin() != all.end()) all.remove(*all.begin());
  const std::size_t kept = places.kept();
  CHECK(all.add(4, 0, 500).bytes.data() == middle);
  CHECK(all.add(5, 0, 20'000).bytes.size() == 20'000);
  CHECK(places.kept() < kept - 11'000);  // the large one is gone
  CHECK(all.add(6, 0, 1).bytes.data() == small);
  CHECK(places.kept() == 0);
  (void)large;
}

TEST_CASE("unexpected_queue: a loop of many lengths needs no more places than it had in use at a time") {
  early_places places;
  unexpected_queue all{places};
  const std::vector<std::size_t> lengths{0, 1, 64, 65, 4096, 100'000, std::size_t{256} << 10, 3, 70'000};
  std::size_t kept = 0;
  for (std::size_t round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < 7; ++i) all.add(i, 0, lengths[(round * 4 + i * i) % lengths.size()]);
    while (all.begin() != all.end()) all.remove(round % 2 == 0 ? *all.begin() : *std::prev(all.end()));
    CHECK(places.free_places() == 7);
    if (round == 8) kept = places.kept();
  }
  CHECK(places.kept() == kept);
}

TEST_CASE("unexpected_queue: no more is kept than is allowed, and nothing that is longer than any early message") {
  early_places places;
  unexpected_queue all{places};
  constexpr std::size_t part = std::size_t{256} << 10;
  for (std::uint64_t t = 0; t < 2 * early_places::most_kept / part; ++t) all.add(t, 0, part);
  while (all.begin() != all.end()) all.remove(*all.begin());
  CHECK(all.held() == 0);
  CHECK(places.kept() > early_places::most_kept - 2 * part);
  CHECK(places.kept() <= early_places::most_kept);
  all.add(9, 0, part + 1);
  const std::size_t before = places.kept();
  all.remove(*std::prev(all.end()));
  CHECK(places.kept() == before);
}

}  // namespace
