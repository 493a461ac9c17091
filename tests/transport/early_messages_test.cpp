#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <tutti/transport/early_messages.hpp>

namespace {

using tutti::detail::early_messages;

TEST_CASE("early_messages: they stay in their order and where they are, and count what they take") {
  early_messages all;
  auto& one = all.add(1, 10, 100);
  auto& two = all.add(2, 20, 0);
  auto& three = all.add(3, 30, 7);
  CHECK(all.held() == early_messages::cost(100) + early_messages::cost(0) + early_messages::cost(7));
  CHECK(one.bytes.size() == 100);
  CHECK(two.bytes.empty());
  CHECK_FALSE(three.complete);
  all.remove(std::next(all.begin()));
  std::vector<std::uint64_t> tags;
  for (const auto& m : all) tags.push_back(m.tag);
  CHECK(tags == std::vector<std::uint64_t>{1, 3});
  CHECK(&*all.begin() == &one);
  all.remove_last();
  CHECK(std::next(all.begin()) == all.end());
  CHECK(all.held() == early_messages::cost(100));
  all.clear();
  CHECK(all.begin() == all.end());
  CHECK(all.held() == 0);
}

TEST_CASE("early_messages: what one lay in is the next one's, which knows nothing of it") {
  early_messages all;
  auto& first = all.add(1, 10, 5000);
  first.complete = true;
  const std::byte* const place = first.bytes.data();
  all.remove_last();
  CHECK(all.kept() >= 5000);
  auto& second = all.add(2, 20, 4000);
  CHECK(&second == &first);
  CHECK(second.bytes.data() == place);
  CHECK(second.bytes.size() == 4000);
  CHECK(second.tag == 2);
  CHECK(second.call == 20);
  CHECK_FALSE(second.complete);
  CHECK(all.kept() == 0);
}

TEST_CASE("early_messages: the smallest room that is large enough is taken, else the largest grows") {
  early_messages all;
  all.add(1, 0, 100);
  all.add(2, 0, 1000);
  all.add(3, 0, 10'000);
  const std::byte *small = nullptr, *middle = nullptr, *large = nullptr;
  for (const auto& m : all) (m.tag == 1 ? small : m.tag == 2 ? middle : large) = m.bytes.data();
  while (all.begin() != all.end()) all.remove(all.begin());
  CHECK(all.add(4, 0, 500).bytes.data() == middle);
  CHECK(all.add(5, 0, 20'000).bytes.size() == 20'000);  // in place of the large one
  CHECK(all.add(6, 0, 1).bytes.data() == small);
  CHECK(all.kept() == 0);
  (void)large;
}

TEST_CASE("early_messages: no more is kept than is allowed") {
  early_messages all;
  constexpr std::size_t part = early_messages::most_kept / 3;
  for (std::uint64_t t = 0; t < 6; ++t) all.add(t, 0, part);
  while (all.begin() != all.end()) all.remove(all.begin());
  CHECK(all.held() == 0);
  CHECK(all.kept() >= part);
  CHECK(all.kept() <= early_messages::most_kept);
  all.add(9, 0, 2 * early_messages::most_kept);
  const std::size_t before = all.kept();
  all.remove_last();
  CHECK(all.kept() == before);
}

}  // namespace
