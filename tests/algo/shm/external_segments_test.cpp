#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <tutti/algo/bring_all.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/external_segments.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;

/// Nobody maps what odd ranks have: what they thought would be read where it lies is not.
class odd_staging_transport : public links::staging_transport {
 public:
  using staging_transport::staging_transport;
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    if (const auto place = staging_transport::locate(p, bytes); place || rank() % 2 != 0) return place;
    return threads_transport::locate(p, bytes);
  }
};

/// An operand, whole and with parts of it elsewhere.
struct operand {
  std::vector<float> whole, buffer;
  std::vector<std::vector<float>> memory;
  std::vector<tutti::external_segment> parts;
  tutti::external_segments external;

  operand(std::mt19937& random, std::size_t count, bool doubled) : whole(count) {
    for (float& x : whole) x = static_cast<float>(random() % 100'000) / 7;
    buffer = whole;
    for (std::size_t at = 0; at < count;) {  // one element, some lines, many blocks; some of them next to each other
      const std::size_t most[] = {1, 70, 9000, count};
      const std::size_t n = std::min(count - at, 1 + random() % most[random() % 4]);
      if (random() % 3 != 0) {
        memory.emplace_back(whole.begin() + static_cast<std::ptrdiff_t>(at),
                            whole.begin() + static_cast<std::ptrdiff_t>(at + n));
        parts.push_back({at, n, memory.back().data()});
        for (std::size_t i = at; i < at + n; ++i) {
          if (doubled) whole[i] *= 2;
          buffer[i] = std::numeric_limits<float>::quiet_NaN();
        }
      }
      at += n;
    }
    external = {parts.data(), parts.size(), nullptr, 2};
    if (doubled)
      external.bring = [](const void* from, void* to, std::size_t n, double factor) noexcept {
        for (std::size_t i = 0; i < n; ++i)
          static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] * static_cast<float>(factor);
      };
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("external_segments: everything comes to its place, and blocks of it to one chunk, past the caches or not") {
  std::mt19937 random(1);
  for (const std::size_t count : {std::size_t{1}, std::size_t{300}, std::size_t{50'000}, std::size_t{1'100'000}}) {
    CAPTURE(count);
    operand o(random, count, count % 3 == 0);
    std::byte* const buffer = reinterpret_cast<std::byte*>(o.buffer.data());
    const tutti::external_segments* d = &o.external;
    for (int i = 0; i < 20; ++i) {
      const std::size_t n = std::min<std::size_t>(count, 1 + random() % 4096), from = random() % (count - n + 1);
      alignas(64) float room[4096];
      const std::byte* got =
          tutti::algo::detail::gathered(*d, from, n, buffer, sizeof(float), reinterpret_cast<std::byte*>(room));
      REQUIRE(std::memcmp(got, o.whole.data() + from, n * sizeof(float)) == 0);
    }
    const auto erased = tutti::erase_type(std::span{o.buffer});
    tutti::all_reduce_args a{{erased.data, count, 4, erased.type}, erased, {}};
    a.external = *d;
    tutti::algo::bring_for_others(a, 1, 3);
    const tutti::algo::blocks cut{count, 3};
    std::size_t early = 0;  // of its own part, which waits
    for (const auto& p : o.parts)
      for (std::size_t i = std::max(p.first, cut.begin(1)); i < std::min(p.first + p.count, cut.begin(2)); ++i)
        early += o.buffer[i] == o.buffer[i];
    CHECK(early == 0);
    CHECK(tutti::algo::bring_all(a).external.empty());
    CHECK(same(o.buffer, o.whole));
  }
}

TEST_CASE_TEMPLATE("displaced_operand: an all_reduce gives the bits that it gives of whole operands, wherever it is", T,
                   tutti::threads_transport, links::staging_transport, odd_staging_transport) {
  const bool mapped = std::is_same_v<T, tutti::threads_transport>;
  std::vector<std::size_t> counts{1024, 5000, 40'001};
  if (mapped) counts.push_back(1'100'000);
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    links::run<T>(size, [&](auto& me) {
      std::mt19937 random(static_cast<unsigned>(17 + me.number()));
      for (const std::size_t count : counts)
        for (const bool doubled : {false, true}) {
          operand o(random, count, doubled);
          const auto memory = o.memory;
          const auto reduce = [&](std::vector<float>& in, tutti::external_segments external) {
            tutti::all_reduce_args a{links::in(in), links::out(in), tutti::erase_type<float>(tutti::mean_over(3))};
            a.external = external;
            if (!external.empty()) tutti::algo::bring_for_others(a, me.number(), me.size());
            me.run([&](auto link) { return tutti::algo::direct_all_reduce(link, me.shm_group(), a); });
          };
          // Ranks need not be alike in it.
          reduce(o.buffer,
                 me.number() == 1 && count == 5000 ? (o.buffer = o.whole, tutti::external_segments{}) : o.external);
          expect(o.memory == memory, "what lay elsewhere was changed");
          o.memory.clear();  // nobody reads it any more
          reduce(o.whole, {});
          expect(same(o.buffer, o.whole), "other bits, of elements", count);
        }
    });
}

}  // namespace
