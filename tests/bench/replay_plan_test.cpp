#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tutti-bench/recording.hpp>
#include <tutti-bench/replay_plan.hpp>
#include <vector>

#include <tutti/watch/dump.hpp>
#include <tutti/watch/flight.hpp>

#include "support/temporary_directory.hpp"

namespace {

namespace watch = tutti::watch;
using bench::replay_plan;

constexpr std::int64_t ms = 1'000'000, origin = 1'700'000'000'000 * ms;

/// Returns an operation that was issued and ended so many milliseconds after the origin; 0: not ended.
watch::flight::entry entry(std::uint64_t id, const char* call, std::uint64_t sequence, std::uint64_t count, int issued,
                           int ended) {
  watch::flight::entry e;
  e.what.id = id;
  e.what.call = watch::call_kind::of(call);
  e.what.sequence = sequence;
  if (std::string_view{call} == "broadcast") e.what.other = 0;
  e.what.count = count;
  e.what.element_bytes = 4;
  e.what.type = tutti::dtype::f32;
  e.what.state = ended ? watch::progress::completed : watch::progress::scheduled;
  e.issued = e.started = origin + issued * ms;
  e.ended = ended ? origin + ended * ms : 0;
  return e;
}
watch::flight flight_of(int rank, int size, std::vector<watch::flight::entry> entries) {
  watch::flight f;
  f.rank = rank;
  f.size = size;
  f.world = 17;
  f.groups.push_back({0, {}});
  for (int r = 0; r < size; ++r) f.groups.front().ranks.push_back(r);
  f.sites.emplace_back();
  f.entries = std::move(entries);
  return f;
}
std::vector<bench::recording> recorded(const std::vector<watch::flight>& flights) {
  std::vector<bench::recording> all;
  for (const watch::flight& f : flights) all.push_back(bench::recording_of(watch::json_of(f)));
  return all;
}
bool all_kinds(tutti::dtype, tutti::reduction_kind k) { return k != tutti::reduction_kind::custom; }
replay_plan plan(const std::vector<watch::flight>& flights) { return bench::plan_of(recorded(flights), all_kinds); }
std::string refusal(const std::vector<watch::flight>& flights) {
  try {
    static_cast<void>(plan(flights));
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("recording: a call is read as the recorder writes it") {
  auto e = entry(7, "reduce", 41, 1000, 5, 9);
  e.what.reduction = tutti::reduction_kind::max;
  e.what.via = tutti::algorithm::tree;
  e.what.other = 1;
  const auto all = recorded({flight_of(0, 2, {e})});
  REQUIRE(all[0].calls.size() == 1);
  const bench::recorded_call& c = all[0].calls[0];
  CHECK(c.id == 7);
  CHECK(c.name == "reduce");
  CHECK(c.count == 1000);
  CHECK(c.element_bytes == 4);
  CHECK(c.type == tutti::dtype::f32);
  CHECK(c.reduction == tutti::reduction_kind::max);
  CHECK(c.via == tutti::algorithm::tree);
  CHECK(c.other == 1);
  CHECK(c.sequence == 41);
  CHECK(c.completed);
  CHECK(c.ended - c.issued == 4 * ms);
  CHECK_FALSE(all[0].from_start);
  CHECK(all[0].groups.at(0) == std::vector<int>{0, 1});
}

TEST_CASE("replay_plan: calls that all ranks have completed, each after those that had ended before it, and the gaps") {
  const auto p = plan({
      flight_of(0, 2,
                {entry(5, "barrier", 4, 0, 0, 1),       // rank 1 no longer has it
                 entry(6, "all_reduce", 5, 10, 2, 6),   // in flight together with the next one
                 entry(7, "all_reduce", 6, 20, 3, 5),   //
                 entry(8, "broadcast", 7, 30, 10, 12),  // 4 ms after the end of the others
                 entry(9, "barrier", 8, 0, 13, 0)}),
      flight_of(1, 2,
                {entry(3, "all_reduce", 5, 10, 2, 6), entry(4, "all_reduce", 6, 20, 3, 7),
                 entry(5, "broadcast", 7, 30, 6, 12), entry(6, "barrier", 8, 0, 13, 14)}),
  });
  REQUIRE(p.ranks.size() == 2);
  const auto& steps = p.ranks[0];
  REQUIRE(steps.size() == 3);
  REQUIRE(p.ranks[1].size() == 3);
  CHECK(steps[0].call.count == 10);
  CHECK(steps[1].ended.empty());
  CHECK(steps[2].ended == std::vector<std::size_t>{0, 1});
  CHECK(steps[1].gap == 1 * ms);
  CHECK(steps[2].gap == 4 * ms);
  CHECK(p.ranks[1][2].ended == std::vector<std::size_t>{0});
  CHECK(p.ranks[1][2].gap == 0);
  CHECK(p.left_out.at("calls that had not ended") == 1);
  CHECK(p.left_out.at("calls that not all ranks of the group have recorded") == 2);
}

TEST_CASE("replay_plan: groups by their members, also where two have one context") {
  auto flights = std::vector{flight_of(0, 4, {}), flight_of(1, 4, {}), flight_of(2, 4, {}), flight_of(3, 4, {})};
  for (int r = 0; r < 4; ++r) {
    auto& f = flights[static_cast<std::size_t>(r)];
    f.groups.push_back({1, r % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3}});
    auto e = entry(2, "broadcast", 1, r % 2 == 0 ? 10 : 20, 2, 3);
    e.what.context = 1;
    e.what.other = 1;
    f.entries = {entry(1, "split", 1, 0, 0, 1), e};
  }
  const auto p = plan(flights);
  CHECK(p.groups == std::vector<std::vector<int>>{{0, 1, 2, 3}, {1, 3}, {2, 0}});
  CHECK(p.ranks[0].at(0).group == 2);
  CHECK(p.ranks[3].at(0).group == 1);
  CHECK(p.ranks[3].at(0).call.count == 20);
  CHECK(p.left_out.at("split: groups are made before") == 4);
}

TEST_CASE("replay_plan: blocks of any lengths are what the members had, or equal where that is not recorded") {
  const auto both = [](const char* call, std::uint64_t first, std::uint64_t second,
                       tutti::dtype type = tutti::dtype::f32) {
    auto a = entry(1, call, 1, first, 0, 1), b = entry(1, call, 1, second, 0, 1);
    a.what.other = b.what.other = 1;
    a.what.type = b.what.type = type;
    a.what.element_bytes = b.what.element_bytes = static_cast<std::uint32_t>(tutti::size_of(type));
    return plan({flight_of(0, 2, {a}), flight_of(1, 2, {b})});
  };
  const auto gather = both("gather_v", 3, 10);
  CHECK(gather.ranks[0].at(0).blocks == std::vector<std::size_t>{3, 7});
  CHECK(gather.ranks[1].at(0).blocks == std::vector<std::size_t>{3, 7});
  CHECK(gather.ranks[0].at(0).call.count == 3);
  CHECK(gather.left_out.empty());
  const auto all = both("all_gather_v", 11, 12);  // the buffer of rank 1 is longer
  CHECK(all.ranks[1].at(0).blocks == std::vector<std::size_t>{5, 6});
  CHECK(all.ranks[1].at(0).call.count == 11);
  CHECK(all.left_out.size() == 1);
  const auto exchange = both("all_to_all_v", 10, 20);
  CHECK(exchange.ranks[0].at(0).blocks == std::vector<std::size_t>{5, 5});
  CHECK(exchange.ranks[0].at(0).received == std::vector<std::size_t>{5, 10});
  CHECK(exchange.ranks[1].at(0).received == std::vector<std::size_t>{5, 10});
  const auto text = both("broadcast", 0, 100, tutti::dtype::u8);
  CHECK(text.ranks[0].at(0).call.count == 100);
  CHECK_THROWS_AS(both("broadcast", 0, 100), std::runtime_error);
}

TEST_CASE(
    "replay_plan: messages in pairs; one without its other end is left out, or refused if earlier ones are missing") {
  const auto message = [](std::uint64_t id, const char* call, int peer, std::uint64_t count) {
    auto e = entry(id, call, id, count, static_cast<int>(id), static_cast<int>(id) + 1);
    e.what.other = peer;
    e.what.tag = 7;
    return e;
  };
  const auto p = plan({flight_of(0, 2, {message(1, "send", 1, 10), message(2, "send", 1, 20)}),
                       flight_of(1, 2, {message(1, "recv", 0, 15)})});
  REQUIRE(p.ranks[0].size() == 1);
  REQUIRE(p.ranks[1].size() == 1);
  CHECK(p.ranks[0][0].call.count == 10);
  CHECK(p.ranks[1][0].call.count == 15);
  CHECK(p.left_out.at("messages of which only one end has completed") == 1);
  const std::string why = refusal({flight_of(0, 2, {message(5, "send", 1, 10), message(6, "send", 1, 20)}),
                                   flight_of(1, 2, {message(1, "recv", 0, 15)})});
  CHECK(why.find("messages from rank 0 to rank 1, one has recorded 2, the other 1") != std::string::npos);
}

TEST_CASE("replay_plan: a reduction by a function, as of a reducer's weights, is replayed as one of as many bytes") {
  auto custom = entry(1, "all_reduce", 1, 3, 0, 1);
  custom.what.type = tutti::dtype::opaque;
  custom.what.element_bytes = 56;
  custom.what.reduction = tutti::reduction_kind::custom;
  const replay_plan p = plan({flight_of(0, 2, {custom}), flight_of(1, 2, {custom})});
  CHECK(p.as_bytes == 2);
  for (const auto& steps : p.ranks) {
    REQUIRE(steps.size() == 1);
    CHECK(steps[0].call.count == 168);
    CHECK(steps[0].call.element_bytes == 1);
    CHECK(steps[0].call.type == tutti::dtype::u8);
    CHECK(steps[0].call.reduction == tutti::reduction_kind::bor);
  }
}

TEST_CASE("replay_plan: what cannot be made again is refused by its name") {
  auto rootless = entry(3, "reduce", 2, 10, 4, 5);
  CHECK(refusal({flight_of(0, 1, {rootless})}).find("reduce whose root or peer is not recorded (1)") !=
        std::string::npos);
  const std::string why = refusal({flight_of(0, 1, {entry(2, "recv_any", 1, 10, 2, 3)})});
  CHECK(why.find("recv_any, whose sender is not recorded (1)") != std::string::npos);
  const std::string odd = refusal(
      {flight_of(0, 2, {entry(1, "barrier", 1, 0, 0, 1)}), flight_of(1, 2, {entry(1, "all_reduce", 1, 8, 0, 1)})});
  CHECK(odd.find("as #1 of their group, rank 0 has called barrier of 0 and rank 1 all_reduce of 8") !=
        std::string::npos);
}

TEST_CASE("recordings_in: the newest world of a folder, or that of one file; what is missing is named") {
  const tutti_test::temporary_directory folder;
  const std::string home = folder.path().string();
  const auto why = [&](const std::string& path) {
    try {
      return std::to_string(bench::recordings_in(path).size());
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
  };
  CHECK(why(folder.file("none")).find("there is no such file or folder") != std::string::npos);
  CHECK(why(home).find("tutti-flight --dump") != std::string::npos);
  auto first = flight_of(0, 2, {});
  watch::dump(first, home);
  CHECK(why(home).find("the recording of rank 1 of 2 is missing") != std::string::npos);
  watch::dump(flight_of(1, 2, {}), home);
  CHECK(why(home) == "2");
  auto second = flight_of(0, 1, {});
  second.number = 2;
  second.world = 18;
  watch::dump(second, home);
  CHECK(why(home) == "1");
  CHECK(why(folder.file("rank_1.json")) == "2");
  first.world = 19;
  watch::dump(first, home);
  CHECK(why(folder.file("rank_1.json")).find("are of different jobs") != std::string::npos);
  // Rank 1 had been in a world of its own before.
  auto zero = flight_of(0, 2, {}), one = flight_of(1, 2, {});
  zero.world = one.world = 21;
  zero.number = 3;
  one.number = 4;
  watch::dump(zero, home);
  watch::dump(one, home);
  CHECK(why(home) == "2");
  CHECK(why(folder.file("rank_0.world3.json")) == "2");
  std::ofstream{folder.file("rank_7.json")} << "{}";
  CHECK(why(home).find("rank_7.json is no recording") != std::string::npos);
}

}  // namespace
