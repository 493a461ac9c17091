#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tutti/core/error.hpp>
#include <tutti/grad/plan.hpp>
#include <utility>
#include <vector>

namespace {
using tutti::dtype;
using tutti::grad::bucket;
using tutti::grad::bucket_limits;
using tutti::grad::make_plan;
using tutti::grad::parameter_shape;
using tutti::grad::plan;
using shapes = std::vector<parameter_shape>;

std::size_t padded_bytes(std::size_t count, dtype type) { return (count * tutti::size_of(type) + 63) / 64 * 64; }

/// The rules that hold for every plan, checked against the shapes alone.
void check_rules(const shapes& list, bucket_limits limits, const plan& p) {
  const std::size_t first = std::min(limits.first_bytes, limits.cap_bytes), cap = limits.cap_bytes;
  std::vector<int> seen(list.size(), 0);
  int earlier_end = std::numeric_limits<int>::max();
  std::map<dtype, int> below_cap;
  bool early = false;
  for (const bucket& b : p.buckets) {
    REQUIRE(!b.slots.empty());
    const std::size_t size = tutti::size_of(b.type);
    std::size_t end = 0, before_last = 0;
    int previous = std::numeric_limits<int>::max();
    for (const auto& slot : b.slots) {
      REQUIRE(slot.parameter >= 0);
      const auto index = static_cast<std::size_t>(slot.parameter);
      REQUIRE(index < list.size());
      REQUIRE(slot.parameter < previous);  // reverse order of registration
      previous = slot.parameter;
      ++seen[index];
      REQUIRE(list[index].type == b.type);
      REQUIRE(list[index].count == slot.count);
      REQUIRE(slot.offset * size % 64 == 0);
      REQUIRE(slot.offset * size == end);  // lines follow each other without a gap
      before_last = end;
      end += padded_bytes(slot.count, b.type);
      if (b.slots.size() > 1) REQUIRE(padded_bytes(slot.count, b.type) <= cap);  // larger ones are alone
    }
    REQUIRE(b.count * size == end);
    REQUIRE(before_last < cap);       // it was still open for its last slot
    REQUIRE(previous < earlier_end);  // launch order is completion order
    earlier_end = previous;
    if (end < cap) ++below_cap[b.type];
    early = early || (end < cap && end >= first);
  }
  // Below the cap there is at most what each dtype had open at the end, and the one bucket that the first cap closed.
  int extra = 0;
  for (const auto& [type, n] : below_cap) extra += n - 1;
  REQUIRE(extra <= (early ? 1 : 0));
  for (const int n : seen) REQUIRE(n == 1);
}

shapes random_shapes(std::mt19937& random) {
  const dtype types[] = {dtype::f32, dtype::f16, dtype::bf16, dtype::f64, dtype::i8, dtype::extended, dtype::i64};
  const std::size_t kinds = 1 + random() % 7, scale = std::size_t{1} << random() % 14;
  shapes list(random() % 40);
  for (auto& p : list) {
    p.count = random() % 8 == 0 ? 0 : random() % 16 == 0 ? random() % (scale * 16 + 1) : random() % scale;
    p.type = types[random() % kinds];
  }
  return list;
}

/// torchvision's ResNet-50: convolutions without bias, each with a normalisation of two vectors.
shapes resnet50() {
  shapes list;
  const auto convolution = [&](std::size_t in, std::size_t out, std::size_t window) {
    list.push_back({"conv.weight", in * out * window * window, dtype::f32});
    list.push_back({"bn.weight", out, dtype::f32});
    list.push_back({"bn.bias", out, dtype::f32});
  };
  convolution(3, 64, 7);
  std::size_t in = 64;
  const std::size_t blocks[] = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < 4; ++stage)
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      const std::size_t width = std::size_t{64} << stage;
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  list.push_back({"fc.weight", 2048 * 1000, dtype::f32});
  list.push_back({"fc.bias", 1000, dtype::f32});
  return list;
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

TEST_CASE("plan: no parameters, no buckets") {
  CHECK(make_plan({}).buckets.empty());
  CHECK(make_plan({}).id() == plan{}.id());
}

TEST_CASE("plan: reverse order, lines of 64 bytes, padding at the end of each slot") {
  const shapes list{{"a", 3, dtype::f32}, {"b", 0, dtype::f32}, {"c", 17, dtype::f32}, {"d", 16, dtype::f32}};
  const plan p = make_plan(list);
  REQUIRE(p.buckets.size() == 1);
  CHECK(p.buckets[0] == bucket{dtype::f32, 64, {{3, 0, 16}, {2, 16, 17}, {1, 48, 0}, {0, 48, 3}}});
  CHECK(make_plan(shapes{{"a", 1, dtype::i8}, {"b", 65, dtype::i8}}).buckets[0].count == 192);
  CHECK(make_plan(shapes{{"a", 1, dtype::f64}}).buckets[0].count == 8);
}

TEST_CASE("plan: a bucket closes when it reaches its cap, the first one at the first cap") {
  const bucket_limits limits{128, 256};
  const shapes list(12, {"w", 16, dtype::f32});  // 64 bytes each
  const plan p = make_plan(list, limits);
  REQUIRE(p.buckets.size() == 4);
  CHECK(p.buckets[0].slots.size() == 2);
  CHECK(p.buckets[1].slots.size() == 4);
  CHECK(p.buckets[2].slots.size() == 4);
  CHECK(p.buckets[3].slots.size() == 2);
  CHECK(p.buckets[0].slots[0].parameter == 11);
  CHECK(p.buckets[3].slots[1].parameter == 0);
  CHECK(make_plan(list, {1 << 20, 64}).buckets.size() == 12);  // first_bytes never exceeds cap_bytes
  CHECK(make_plan(list, {1, 1}).buckets.size() == 12);
}

TEST_CASE("plan: a parameter above the cap travels alone and leaves the open bucket open") {
  const bucket_limits limits{64, 128};
  const shapes list{
      {"e", 16, dtype::f32}, {"d", 33, dtype::f32}, {"c", 16, dtype::f32}, {"b", 32, dtype::f32}, {"a", 1, dtype::f32}};
  const plan p = make_plan(list, limits);
  REQUIRE(p.buckets.size() == 4);
  CHECK(p.buckets[0].slots == std::vector<tutti::grad::bucket_slot>{{4, 0, 1}});
  CHECK(p.buckets[1].slots == std::vector<tutti::grad::bucket_slot>{{3, 0, 32}});  // equal to the cap: fills a bucket
  CHECK(p.buckets[2].slots == std::vector<tutti::grad::bucket_slot>{{1, 0, 33}});
  CHECK(p.buckets[3].slots == std::vector<tutti::grad::bucket_slot>{{2, 0, 16}, {0, 16, 16}});
}

TEST_CASE("plan: a parameter as large as the cap joins the open bucket and fills it") {
  const shapes list{{"b", 32, dtype::f32}, {"a", 8, dtype::f32}};
  const plan p = make_plan(list, {128, 128});
  REQUIRE(p.buckets.size() == 1);
  CHECK(p.buckets[0] == bucket{dtype::f32, 48, {{1, 0, 8}, {0, 16, 32}}});
}

TEST_CASE("plan: each dtype has an open bucket of its own, and buckets go in the order of completion") {
  shapes list;
  for (int i = 0; i < 6; ++i) list.push_back({"w", 16, i % 2 ? dtype::f32 : dtype::bf16});
  plan p = make_plan(list);
  REQUIRE(p.buckets.size() == 2);
  CHECK(p.buckets[0] == bucket{dtype::f32, 48, {{5, 0, 16}, {3, 16, 16}, {1, 32, 16}}});
  CHECK(p.buckets[1] == bucket{dtype::bf16, 96, {{4, 0, 16}, {2, 32, 16}, {0, 64, 16}}});

  // The one bf16 tensor is complete long before the second f32 bucket fills up.
  list.assign(9, {"w", 16, dtype::f32});
  list[7].type = dtype::bf16;
  p = make_plan(list, {256, 256});
  REQUIRE(p.buckets.size() == 3);
  CHECK(p.buckets[0].type == dtype::bf16);
  CHECK(p.buckets[1].slots.size() == 4);
  CHECK(p.buckets[2].slots.size() == 4);
}

TEST_CASE("plan: empty parameters are legal, even alone") {
  const plan p = make_plan(shapes{{"a", 0, dtype::f32}, {"b", 0, dtype::f16}, {"c", 0, dtype::f16}});
  REQUIRE(p.buckets.size() == 2);
  CHECK(p.buckets[0] == bucket{dtype::f16, 0, {{2, 0, 0}, {1, 0, 0}}});
  CHECK(p.buckets[1] == bucket{dtype::f32, 0, {{0, 0, 0}}});
}

TEST_CASE("plan: ResNet-50 gives the buckets that arithmetic on its stages gives") {
  const shapes list = resnet50();
  REQUIRE(list.size() == 161);
  std::size_t total = 0;
  for (const auto& p : list) total += p.count;
  REQUIRE(total == 25557032);

  const plan p = make_plan(list);
  const std::size_t cap = (std::size_t{25} << 20) / 4;
  // The classifier (2,048,000 + 1000, padded to whole lines of 16) reaches 1 MiB by itself.
  const std::size_t classifier = 2048000 + 1008;
  // A block of stage 4 has 1x1, 3x3 and 1x1 convolutions; read backwards, the cap is reached with the 3x3 of block 1
  // and then with that of block 0.
  const std::size_t one = 2048 * 512, three = 512 * 512 * 9, block = one + three + one + 2 * (512 + 512 + 2048);
  const std::size_t second = block + 2 * 2048 + one + 2 * 512 + three;
  const std::size_t third = 2 * 512 + one + 2 * 2048 + 1024 * 2048 + 2 * 2048 + one + 2 * 512 + three;
  REQUIRE((second >= cap && second - three < cap && third >= cap && third - three < cap));
  // In what is left no tensor exceeds 1024 * 512 elements, so the overshoot of one more full bucket is below that, and
  // the rest, less than one cap, makes the last.
  const std::size_t rest = total + 8 - classifier - second - third;
  REQUIRE((rest > cap + 1024 * 512 && rest < 2 * cap));
  REQUIRE(p.buckets.size() == 5);
  CHECK(p.buckets[0].count == classifier);
  CHECK(p.buckets[1].count == second);
  CHECK(p.buckets[2].count == third);
  CHECK(p.buckets[3].count >= cap);
  CHECK(p.buckets[3].count + p.buckets[4].count == rest);
  CHECK(p.buckets[0].slots.front().parameter == 160);
  CHECK(p.buckets[4].slots.back().parameter == 0);
  check_rules(list, {}, p);
}

TEST_CASE("plan: the rules hold for random lists, and the same list gives the same plan") {
  std::mt19937 random(2024);
  std::set<std::uint64_t> ids;
  std::size_t buckets = 0;
  for (int round = 0; round < 10000; ++round) {
    const shapes list = random_shapes(random);
    const bucket_limits limits{1 + random() % 4096, 1 + random() % 16384};
    CAPTURE(round);
    const plan p = make_plan(list, limits);
    check_rules(list, limits, p);
    REQUIRE(p == make_plan(shapes(list), limits));
    REQUIRE(p.id() == make_plan(list, limits).id());
    buckets += p.buckets.size();
    ids.insert(p.id());
  }
  CHECK(buckets > 20000);
  CHECK(ids.size() > 9000);
}

TEST_CASE("plan: the layout does not depend on names; the id depends on everything else") {
  const shapes list{{"a", 100, dtype::f32}, {"b", 40, dtype::f32}, {"c", 7, dtype::f32}};
  const plan p = make_plan(list);
  shapes renamed = list;
  renamed[1].name = "other";
  CHECK(make_plan(renamed).id() == p.id());
  CHECK(p.id() == 3299631728961746661u);  // worked out by hand from FNV-1a's definition

  std::set<std::uint64_t> ids{p.id()};
  const auto fresh = [&](const plan& q) { return ids.insert(q.id()).second; };
  shapes other = list;
  other[1].count = 41;  // the same number of lines
  CHECK(fresh(make_plan(other)));
  other = list;
  std::swap(other[0], other[1]);
  CHECK(fresh(make_plan(other)));
  other = list;
  for (auto& q : other) q.type = dtype::i32;
  CHECK(fresh(make_plan(other)));
  other = list;
  other[0].rows = 10;
  CHECK(fresh(make_plan(other)));
  CHECK(fresh(make_plan(list, {}, std::vector<int>{0, 1, 2})));
  plan longer = p;
  longer.buckets[0].tail_lines = 2;
  CHECK(fresh(longer));
  CHECK(fresh(make_plan(list, {64, 64})));
  CHECK(fresh(make_plan(shapes(list.begin(), list.end() - 1))));
  CHECK(fresh(plan{}));
}

TEST_CASE("plan: a ready order decides what comes together") {
  const shapes list{{"a", 16, dtype::f32}, {"b", 16, dtype::f32}, {"c", 8, dtype::f64}, {"d", 16, dtype::f32}};
  const plan p = make_plan(list, {128, 128}, std::vector<int>{1, 2, 3, 0});
  REQUIRE(p.buckets.size() == 3);
  CHECK(p.buckets[0].slots == std::vector<tutti::grad::bucket_slot>{{2, 0, 8}});  // below its cap, but complete early
  CHECK(p.buckets[1].slots == std::vector<tutti::grad::bucket_slot>{{1, 0, 16}, {3, 16, 16}});
  CHECK(p.buckets[2].slots == std::vector<tutti::grad::bucket_slot>{{0, 0, 16}});
  std::vector<int> registered{3, 2, 1, 0};
  CHECK(make_plan(list, {}, registered) == make_plan(list));
}

TEST_CASE("plan: a list of caps holds for the buckets that close first, one by one") {
  const shapes list(12, {"a", 16, dtype::f32});
  const plan p = make_plan(list, {.cap_bytes = 256, .each_bytes = {64, 192, 1 << 20}});
  std::vector<std::size_t> lengths;
  for (const bucket& b : p.buckets) lengths.push_back(b.slots.size());
  CHECK(lengths == std::vector<std::size_t>{1, 3, 4, 4});  // none beyond cap_bytes
  CHECK(refusal([&] { (void)make_plan(list, {.each_bytes = {64, 0}}); }).find("0 bytes") != std::string::npos);
}

TEST_CASE("plan: what is delayed comes last, in buckets of its own, and the others are as without it") {
  const std::vector<parameter_shape> list{{"a", 16, dtype::f32},
                                          {"b", 16, dtype::f32},
                                          {"c", 16, dtype::f64},
                                          {"d", 16, dtype::f32},
                                          {"e", 16, dtype::f32}};
  const std::vector<int> late{3, 1, 3};
  const plan p = make_plan(list, {1000, 1000}, {}, late);
  CHECK(p.order() == std::vector<int>{2, 4, 0, 3, 1});
  REQUIRE(p.buckets.size() == 3);
  CHECK(p.delayed == 1);
  CHECK(p.buckets[2].slots.size() == 2);  // closed though the one of float before it had room
  const std::vector<int> ready_order{1, 0, 4, 3, 2}, all{0, 1, 2, 3, 4};
  CHECK(make_plan(list, {1000, 1000}, ready_order, late).order() == std::vector<int>{0, 4, 2, 1, 3});
  CHECK(make_plan(list, {1, 1}, {}, all).delayed == 5);
  CHECK(make_plan(list, {1, 1}, {}, all).id() != make_plan(list, {1, 1}).id());
  CHECK(make_plan({}, {}, {}, {}).delayed == 0);
  for (const int wrong : {-1, 5})
    CHECK_THROWS_AS((void)make_plan(list, {}, {}, std::span{&wrong, 1}), tutti::usage_error);
}

TEST_CASE("plan: in memory of the caller's buckets have neither padding nor tail, and one range each if they must") {
  // Two layers of two tensors each, as llm.c lays them out: tensor by tensor.
  const shapes list{{"w0", 100}, {"w1", 100}, {"none", 0}, {"b0", 3}, {"b1", 3}};
  const std::vector<int> blocks{0, 0, 0, 1, 1}, arrival{4, 1, 3, 0, 2};
  const bucket_limits all{1 << 20, 1 << 20};
  const plan several = make_plan(list, all, arrival, {}, {blocks});
  REQUIRE(several.buckets.size() == 2);
  CHECK(several.buckets[0].slots ==
        std::vector<tutti::grad::bucket_slot>{{4, 203, 3}, {1, 100, 100}, {3, 200, 3}, {0, 0, 100}, {2, 200, 0}});
  CHECK(several.buckets[0].count == 206);
  CHECK(several.buckets[0].tail_lines == 0);
  CHECK(several.buckets[1] == bucket{});  // the tail of all
  CHECK(several.order() == arrival);
  CHECK(make_plan(list, all, {}, {}, {blocks}).buckets.size() == 2);

  const plan one = make_plan(list, all, arrival, {}, {blocks, tutti::grad::bucket_ranges::one});
  std::vector<std::vector<int>> parts;
  for (const bucket& b : one.buckets) {
    std::vector<int>& part = parts.emplace_back();
    for (const auto& slot : b.slots) part.push_back(slot.parameter);
  }
  CHECK(parts == std::vector<std::vector<int>>{{4}, {1}, {3}, {0}, {2}, {}});
  const plan in_order = make_plan(list, all, {}, {}, {blocks, tutti::grad::bucket_ranges::one});
  REQUIRE(in_order.buckets.size() == 3);
  CHECK(in_order.buckets[0].slots == std::vector<tutti::grad::bucket_slot>{{4, 3, 3}, {3, 0, 3}});
  CHECK(in_order.buckets[1].count == 200);
  CHECK(in_order.id() != several.id());

  const std::vector<int> late{0};
  const plan delayed = make_plan(list, all, {}, late, {blocks});
  CHECK(delayed.delayed == 2);
  CHECK(delayed.buckets.size() == 3);
  CHECK(make_plan({}, all, {}, {}, {}).buckets.empty());
}

TEST_CASE("plan: rows divide a matrix") {
  const shapes matrix{{"w", 12, dtype::f32, 3}};
  CHECK(make_plan(matrix).buckets[0].slots[0].rows == 3);
  for (const std::size_t rows : {std::size_t{0}, std::size_t{5}, std::size_t{24}}) {
    const shapes bad{{"w", 12, dtype::f32, rows}};
    CHECK(refusal([&] { (void)make_plan(bad); }).find("\"w\") has rows that do not divide its count") !=
          std::string::npos);
  }
}

TEST_CASE("plan: mistakes are refused with the parameter named") {
  const shapes one{{"w", 1, dtype::f32}};
  CHECK(refusal([&] { (void)make_plan(one, {0, 1}); }).find("first_bytes") != std::string::npos);
  CHECK(refusal([&] { (void)make_plan(one, {1, 0}); }).find("cap_bytes") != std::string::npos);
  const auto with = [](std::size_t count, dtype type) {
    return refusal([&] { (void)make_plan(shapes{{"fine", 1, dtype::f32}, {"layer.weight", count, type}}); });
  };
  CHECK(with(1, dtype::opaque).find("parameter 1 (\"layer.weight\")") != std::string::npos);
  CHECK(with(1, static_cast<dtype>(200)).find("unknown dtype") != std::string::npos);
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(with(most, dtype::f32).find("memory") != std::string::npos);
  CHECK(with(most, dtype::i8).find("memory") != std::string::npos);
  CHECK(with(most / 8 - 8, dtype::f64) == "accepted");
}

TEST_CASE("plan: limits without bound give one bucket") {
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(make_plan(shapes(50, {"w", 1 << 20, dtype::f32}), {most, most}).buckets.size() == 1);
  const plan p = make_plan(shapes(4, {"w", most / 4, dtype::i8}), {most, most});
  CHECK(p.buckets.size() == 2);
}
