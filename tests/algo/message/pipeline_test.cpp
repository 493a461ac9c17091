#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/message/pipeline.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algo::chunk_bytes;
using tutti::algo::chunk_count;
using tutti::algo::nth_chunk;

static_assert(chunk_count(0) == 1);
static_assert(chunk_count(1) == 1);
static_assert(chunk_count(chunk_bytes) == 1);
static_assert(chunk_count(chunk_bytes + 1) == 2);
static_assert(chunk_count(chunk_bytes + 1, 100) == 2622);

TEST_CASE("pipeline: chunks cover a message") {
  std::vector<std::byte> data(2 * chunk_bytes + 5);
  std::size_t next = 0;
  for (std::size_t i = 0; i < chunk_count(data.size()); ++i) {
    const auto chunk = nth_chunk(std::span{data}, i);
    CHECK(chunk.data() == data.data() + next);
    next += chunk.size();
  }
  CHECK(next == data.size());
  CHECK(nth_chunk(std::span<std::byte>{}, 0).empty());
}

// What arrived in one step goes out in the next: after n steps around a ring everyone has their own number again.
template <class L>
tutti::routine go_round(L link, std::vector<int>& v, std::vector<std::size_t>& order, std::size_t per_step) {
  const int n = link.size(), r = link.rank();
  const auto at = [&](std::size_t i) { return std::as_writable_bytes(std::span{&v[i % per_step], 1}); };
  std::vector<int> arrived(per_step);
  co_await tutti::algo::detail::pipeline(
      link, {(r + n - 1) % n, (r + 1) % n, per_step * static_cast<std::size_t>(n), per_step, 7},
      [&](std::size_t i) { return std::span<const std::byte>(at(i)); },
      [&](std::size_t i) { return std::as_writable_bytes(std::span{&arrived[i % per_step], 1}); },
      [&](std::size_t i) {
        v[i % per_step] = arrived[i % per_step];
        order.push_back(i);
      });
}

TEST_CASE("pipeline: a chunk is sent when the one of the step before has landed, and chunks land in order") {
  for (const int size : {2, 3, 5})
    for (const std::size_t per_step : std::vector<std::size_t>{1, 2, 3, 7})
      links::run(size, [per_step](auto& me) {
        std::vector<int> v(per_step);
        for (std::size_t i = 0; i < per_step; ++i) v[i] = me.number() * 100 + static_cast<int>(i);
        const std::vector<int> began = v;
        std::vector<std::size_t> order;
        me.run([&](auto link) { return go_round(link, v, order, per_step); });
        expect(v == began, "another number came back");
        expect(order.size() == per_step * static_cast<std::size_t>(me.size()), "another number of chunks");
        for (std::size_t i = 0; i < order.size(); ++i) expect(order[i] == i, "chunk", i);
      });
}

}  // namespace
