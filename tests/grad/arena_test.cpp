#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/transport/threads.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace {
using tutti::dtype;
using tutti::grad::arena;
using tutti::grad::bucket_limits;
using tutti::grad::make_plan;
using tutti::grad::parameter_shape;
using shapes = std::vector<parameter_shape>;

static_assert(!std::is_copy_constructible_v<arena> && std::is_nothrow_move_constructible_v<arena>);

/// A world of one, whose memory arenas are made of.
struct alone {
  tutti::communicator<tutti::threads> world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::size_t asked = 0;

  arena make(const shapes& list, bucket_limits limits = {}) {
    return arena{list, make_plan(list, limits), [this](std::size_t bytes) {
                   asked = bytes;
                   return world.allocate<std::byte>(bytes);
                 }};
  }
};

struct extent {
  const std::byte* begin;
  const std::byte* end;
};

/// The bytes of a gradient, whatever its type.
extent bytes_of(const arena& a, std::size_t i, dtype type) {
  return tutti::grad::visit_gradient(type, [&]<class T>() {
    const auto bytes = std::as_bytes(a.gradient<T>(i));
    return extent{bytes.data(), bytes.data() + bytes.size()};
  });
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
  return "accepted";
}
}  // namespace

TEST_CASE("arena: gradients are zero at first, start lines, and lie in their bucket in front of its tail") {
  std::mt19937 random(7);
  const dtype types[] = {dtype::f32, dtype::f16, dtype::bf16, dtype::f64};
  for (int round = 0; round < 200; ++round) {
    shapes list(random() % 20);
    for (auto& p : list) p = {"", random() % 5 == 0 ? 0 : random() % 300, types[random() % 4]};
    alone one;
    const arena a = one.make(list, {1 + random() % 2000, 1 + random() % 4000});
    REQUIRE(a.size() == list.size());
    std::vector<extent> taken;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const extent g = bytes_of(a, i, list[i].type);
      REQUIRE(g.end - g.begin == static_cast<std::ptrdiff_t>(list[i].count * size_of(list[i].type)));
      REQUIRE(reinterpret_cast<std::uintptr_t>(g.begin) % 64 == 0);
      REQUIRE(std::all_of(g.begin, g.end, [](std::byte b) { return b == std::byte{0}; }));
      tutti::grad::visit_gradient(list[i].type, [&]<class T>() {
        const auto bucket = std::as_bytes(a.bucket_with_tail<T>(a.bucket_of(i)));
        const auto tail = std::as_bytes(a.tail<T>(a.bucket_of(i)));
        REQUIRE(tail.size() == 64);
        REQUIRE(tail.data() + 64 == bucket.data() + bucket.size());
        REQUIRE(bucket.data() <= g.begin);
        REQUIRE(g.end <= tail.data());
        taken.push_back({tail.data(), tail.data() + tail.size()});
      });
      if (g.begin != g.end) taken.push_back(g);
    }
    // Gradients are disjoint; a tail is that of its whole bucket.
    std::sort(taken.begin(), taken.end(), [](extent x, extent y) { return x.begin < y.begin; });
    for (std::size_t i = 1; i < taken.size(); ++i)
      REQUIRE((taken[i - 1].end <= taken[i].begin || taken[i - 1].begin == taken[i].begin));
  }
}

TEST_CASE("arena: takes the gradients, a line per bucket and what rounding to pages adds") {
  alone one;
  const shapes list{{"a", 1000, dtype::f32}, {"b", 3, dtype::f64}, {"c", 5000, dtype::f32}, {"d", 1, dtype::bf16}};
  for (const std::size_t cap : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20}) {
    const arena a = one.make(list, {cap, cap});
    std::size_t most = 0;
    for (const auto& p : list) most += (p.count * size_of(p.type) + 63) / 64 * 64;
    most += a.layout().buckets.size() * (64 + 4095);
    CHECK(a.bytes() <= most);
    CHECK(a.bytes() == one.asked);
    CHECK(a.bytes() % 4096 == 0);
  }
  CHECK(one.make({{"a", 1008, dtype::f32}}).bytes() == 4096);  // with its line just one page
  CHECK(one.make({{"a", 1009, dtype::f32}}).bytes() == 8192);
  CHECK(one.make({{"empty", 0, dtype::f32}}).bytes() == 4096);
  CHECK(one.make({}).bytes() == 0);
}

TEST_CASE("arena: what is written through a view is in the bucket, and views survive moves") {
  alone one;
  arena a = one.make({{"a", 2, dtype::f32}, {"b", 20, dtype::f32}});
  const auto first = a.gradient<float>(0), second = a.gradient<float>(1);
  first[1] = 5;
  second[19] = 7;
  CHECK(a.bucket_with_tail<float>(0)[19] == 7);  // the last parameter comes first
  CHECK(a.bucket_with_tail<float>(0)[32 + 1] == 5);
  CHECK(a.bucket_with_tail<float>(0).size() == 48 + 16);
  a.tail<float>(0)[15] = 9;
  CHECK(a.bucket_with_tail<float>(0).back() == 9);
  arena moved = std::move(a);
  CHECK(moved.gradient<float>(0).data() == first.data());
  std::optional<arena> assigned{one.make({{"z", 1, dtype::f64}})};
  *assigned = std::move(moved);
  CHECK(assigned->gradient<float>(1).data() == second.data());
  CHECK(second[19] == 7);
}

TEST_CASE("arena: a wrong index or type is refused") {
  alone one;
  const arena a = one.make({{"a", 2, dtype::f32}, {"b", 2, dtype::bf16}});
  CHECK(refusal([&] { (void)a.gradient<float>(2); }).find("no gradient 2 among 2") != std::string::npos);
  const std::string wrong = refusal([&] { (void)a.gradient<tutti::float16>(1); });
  CHECK(wrong.find("gradient 1 is bfloat16") != std::string::npos);
  CHECK(wrong.find("float16") != std::string::npos);
  CHECK(refusal([&] { (void)a.gradient<int>(0); }).find("asked for as int32") != std::string::npos);
  CHECK(refusal([&] { tutti::grad::visit_gradient(dtype::i32, []<class T>() {}); }).find("int32") != std::string::npos);
}

TEST_CASE("arena: sizes that overflow are refused, and a failed allocation passes through") {
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  const auto build = [](const shapes& list, bucket_limits limits) {
    return arena{list, make_plan(list, limits), [](std::size_t bytes) -> tutti::mapped_array<std::byte> {
                   throw std::length_error(std::to_string(bytes));
                 }};
  };
  const bucket_limits together{most, most}, apart{1, 1};
  const auto text = [&](const shapes& list, bucket_limits l) { return refusal([&] { (void)build(list, l); }); };
  CHECK(text({{"a", most / 8 - 8, dtype::f64}}, together).find("more bytes than memory") != std::string::npos);
  const shapes halves(2, {"a", most / 16, dtype::f64});
  CHECK(text(halves, together).find("more bytes than memory") != std::string::npos);
  CHECK(text(halves, apart).find("more bytes than memory") != std::string::npos);
  const shapes many(5, {"a", most / 32, dtype::f64});
  CHECK(text(many, apart).find("more bytes than memory") != std::string::npos);
  const shapes brim(2, {"a", (std::size_t{1} << 60) - 8, dtype::f64});  // the first one fits, but for its tail
  CHECK(text(brim, apart).find("more bytes than memory") != std::string::npos);
  const shapes small(3, {"a", most / 64, dtype::f64});
  CHECK_THROWS_AS((void)build(small, apart), std::length_error);
  const auto poor = [](std::size_t) -> tutti::mapped_array<std::byte> { throw std::bad_alloc(); };
  const shapes one{{"a", 1, dtype::f32}};
  CHECK_THROWS_AS((arena{one, make_plan(one), poor}), std::bad_alloc);
}
