#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <tutti/watch/flight_recorder.hpp>

#include "support/temporary_directory.hpp"
#include "tutti-flight/verdict.hpp"

// Verdicts on recordings that are made up.
namespace {

using namespace tutti::flight_tool;
using tutti::errc;
using tutti::watch::call_kind;
using tutti::watch::flight;
using tutti::watch::progress;

constexpr std::int64_t second = 1'000'000'000, begin = 1'700'000'000 * second;

/// A world in which every rank has ended its first `calls` collectives, one a second.
class made_up {
 public:
  explicit made_up(int size, int calls = 40) {
    world.size = size;
    world.now = begin + calls * second;
    for (int r = 0; r < size; ++r) {
      recorded_rank& one = world.ranks.emplace_back();
      one.process = process_state::runs;
      flight& f = one.flight;
      f.rank = r;
      f.size = size;
      f.pid = 100 + r;
      f.boot = "here";
      f.groups.emplace_back();
      for (int m = 0; m < size; ++m) f.groups[0].ranks.push_back(m);
      f.sites = {{}, {"/src/train.cpp", "int main()", 88}, {"/src/eval.cpp", "int main()", 20}};
      for (int i = 0; i < calls; ++i) ended(r, "all_reduce", 1, begin + i * second, begin + i * second + second / 2);
    }
  }
  flight& of(int r) { return world.ranks[static_cast<std::size_t>(r)].flight; }
  flight::entry& add(int r, const char* call, std::uint16_t site, std::int64_t issued) {
    flight& f = of(r);
    flight::entry& e = f.entries.emplace_back();
    e.what.id = f.entries.size();
    e.what.sequence = f.entries.size();
    e.what.call = call_kind::of(call);
    e.what.site = site;
    e.what.count = 1000;
    e.what.state = progress::scheduled;
    e.issued = issued;
    return e;
  }
  void ended(int r, const char* call, std::uint16_t site, std::int64_t issued, std::int64_t until) {
    flight::entry& e = add(r, call, site, issued);
    e.what.state = progress::completed;
    e.ended = until;
  }
  void fail(int r, errc why, int peer, std::int64_t at) {
    flight& f = of(r);
    f.failed = at;
    f.failure = why;
    f.failed_peer = peer;
    for (flight::entry& e : f.entries)
      if (e.what.state == progress::scheduled) {
        e.what.state = progress::failed;
        e.ended = at;
      }
  }
  [[nodiscard]] verdict judged() const { return judge(world, std::chrono::seconds{1}); }
  [[nodiscard]] std::string said() const { return in_words(world, judged()); }

  recorded_world world;
};

void check_said(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    CHECK_MESSAGE(text.find(part) != std::string::npos, part << " is not in " << text);
}

TEST_CASE("tutti-flight: a rank that has not called what the others wait in is named, with its last call") {
  made_up m{4};
  for (const int r : {0, 1, 2}) m.add(r, "broadcast", 2, m.world.now);
  m.world.now += 12 * second;
  const verdict v = m.judged();
  CHECK(v.what == finding::missing);
  CHECK(v.suspected == std::vector<int>{3});
  check_said(m.said(), {"Rank 3 keeps the others waiting.",
                        "rank 3 has been in no call for 12 s; its last one, #40 all_reduce train.cpp:88, has ended",
                        "ranks 0 to 2 have waited in #41 broadcast eval.cpp:20 (1000 x uint8) for 12 s"});
}

TEST_CASE("tutti-flight: a wait that is short is normal") {
  made_up m{2};
  m.add(0, "all_reduce", 1, m.world.now);
  m.world.now += second / 10;
  CHECK(m.judged().what == finding::nothing);
  CHECK(m.said() == "Nothing is stuck.\n");
}

TEST_CASE("tutti-flight: a stopped process is suspected, also inside of the call") {
  made_up m{3};
  for (const int r : {0, 1, 2}) m.add(r, "all_reduce", 1, m.world.now);
  m.world.now += 5 * second;
  CHECK(m.judged().what == finding::together);
  m.world.ranks[1].process = process_state::stopped;
  CHECK(m.judged().suspected == std::vector<int>{1});
  check_said(m.said(), {"Rank 1 keeps", "its process 101 is stopped"});
}

TEST_CASE("tutti-flight: a process that has ended without leaving is suspected") {
  made_up m{3};
  for (const int r : {0, 1}) m.add(r, "all_reduce", 1, m.world.now);
  m.world.now += 5 * second;
  m.world.ranks[2].process = process_state::gone;
  CHECK(m.judged().suspected == std::vector<int>{2});
  check_said(m.said(), {"its process 102 has ended without leaving the world"});
  // A process that has ended waits no longer, however late one asks.
  m.world.now += 300 * second;
  m.world.ranks[0].process = process_state::gone;
  check_said(m.said(), {"rank 0 was in #41 all_reduce"});
  CHECK(m.said().find("rank 0 has waited") == std::string::npos);
}

TEST_CASE("tutti-flight: a rank without a recording is suspected") {
  made_up m{3};
  for (const int r : {0, 1}) m.add(r, "all_reduce", 1, m.world.now);
  m.world.now += 5 * second;
  m.world.ranks.pop_back();
  CHECK(m.judged().suspected == std::vector<int>{2});
  check_said(m.said(), {"rank 2 left no recording"});
}

TEST_CASE("tutti-flight: of ranks in different calls, the one that differs from most is named") {
  made_up m{4};
  for (const int r : {0, 1, 3}) m.add(r, "all_reduce", 1, m.world.now);
  m.add(2, "broadcast", 2, m.world.now).what.other = 0;
  m.world.now += 5 * second;
  const verdict v = m.judged();
  CHECK(v.what == finding::mismatch);
  CHECK(v.suspected == std::vector<int>{2});
  check_said(m.said(),
             {"Rank 2 has called something else than the others", "rank 2 has waited in #41 broadcast eval.cpp:20",
              "ranks 0, 1, 3 have waited in #41 all_reduce"});
}

TEST_CASE("tutti-flight: other sizes are another call; of two ranks, neither is named") {
  made_up m{2};
  m.add(0, "all_reduce", 1, m.world.now);
  m.add(1, "all_reduce", 1, m.world.now).what.count = 999;
  m.world.now += 5 * second;
  CHECK(m.judged().what == finding::mismatch);
  CHECK(m.judged().suspected.empty());
  check_said(m.said(), {"The ranks are in different calls", "(1000 x", "(999 x"});
}

TEST_CASE("tutti-flight: a text's length is the root's to know, so other ranks' are no other call; other types are") {
  made_up m{3};
  for (const int r : {0, 1, 2}) {
    auto& what = m.add(r, "broadcast", 1, m.world.now).what;
    what.other = 1;
    what.count = r == 1 ? 7 : 0;
  }
  m.world.now += 5 * second;
  CHECK(m.judged().what == finding::together);
  m.of(2).entries.back().what.type = tutti::dtype::f32;
  CHECK(m.judged().what == finding::mismatch);
  for (const int r : {0, 1, 2}) m.of(r).entries.back().what.type = tutti::dtype::f32;
  CHECK(m.judged().what == finding::mismatch);
}

TEST_CASE("tutti-flight: of two ranks that differ in a small group of a large world, neither is named") {
  made_up m{8};
  for (const int r : {5, 6}) {
    m.of(r).groups.push_back({1, {5, 6}});
    auto& what = m.add(r, r == 5 ? "all_reduce" : "barrier", 1, m.world.now).what;
    what.context = 1;
    what.sequence = 1;
  }
  m.world.now += 5 * second;
  CHECK(m.judged().what == finding::mismatch);
  CHECK(m.judged().suspected.empty());
}

TEST_CASE("tutti-flight: ranks that wait in groups of their own are told apart from the rank that both wait for") {
  made_up m{4};
  for (int r = 0; r < 4; ++r) {
    m.of(r).groups.push_back({1, r < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}});
  }
  // Rank 1 is late for its group; ranks 2 and 3 have gone on to the world's next collective, and wait for rank 0.
  m.add(0, "all_reduce", 1, m.world.now).what.context = 1;
  m.of(0).entries.back().what.sequence = 1;
  for (const int r : {2, 3}) m.add(r, "barrier", 2, m.world.now);
  m.world.now += 5 * second;
  CHECK(m.judged().suspected == std::vector<int>{1});
}

TEST_CASE("tutti-flight: after a deadline, the rank for which all had waited is named") {
  made_up m{3};
  for (const int r : {0, 1}) {
    m.add(r, "all_reduce", 1, m.world.now);
    m.fail(r, errc::timed_out, 2, m.world.now + 30 * second);
  }
  m.world.now += 3600 * second;
  for (auto& r : m.world.ranks) r.process = process_state::gone;
  const verdict v = m.judged();
  CHECK(v.failed);
  CHECK(v.suspected == std::vector<int>{2});
  check_said(m.said(), {"Rank 2 kept the others waiting, until the world failed (timed out).",
                        "ranks 0, 1 were in #41 all_reduce train.cpp:88 (1000 x uint8) for 30 s"});
}

TEST_CASE("tutti-flight: a rank that died is named, though others had not called either") {
  made_up m{4};
  m.add(0, "all_reduce", 1, m.world.now);
  m.fail(0, errc::peer_lost, 2, m.world.now + second / 100);
  const verdict v = m.judged();
  CHECK(v.what == finding::lost);
  CHECK(v.suspected == std::vector<int>{2});
  check_said(m.said(), {"Rank 2 died, or lost its connection."});
}

TEST_CASE("tutti-flight: the rank that is usually the last is named, with how often and by how much") {
  made_up m{3};
  for (int i = 0; i < 40; ++i) m.of(1).entries[static_cast<std::size_t>(i)].issued += second / 200;
  const verdict v = m.judged();
  CHECK(v.what == finding::nothing);
  CHECK(v.arrival.collectives.late_rank == 1);
  check_said(m.said(), {"Nothing is stuck.", "Rank 1 is the last in 100 % of 40 collectives, by 5.0 ms on average."});
}

TEST_CASE("tutti-flight: a machine whose clock is wrong makes nobody late") {
  made_up m{3};
  m.of(2).boot = "there";
  for (flight::entry& e : m.of(2).entries) {
    e.issued += 3 * second;
    e.ended += 3 * second;
  }
  CHECK(m.judged().arrival.collectives.late_rank == -1);
}

TEST_CASE("tutti-flight: a receive names its sender") {
  made_up m{3};
  m.add(1, "recv", 2, m.world.now).what.other = 0;
  m.world.now += 5 * second;
  CHECK(m.judged().suspected == std::vector<int>{0});
  check_said(m.said(), {"rank 1 has waited in #41 recv from rank 0 eval.cpp:20"});
}

TEST_CASE("tutti-flight: the peer of a message is named as a rank of the world, not of its group") {
  made_up m{4};
  m.of(3).groups.push_back({1, {2, 3}});
  auto& what = m.add(3, "recv", 2, m.world.now).what;
  what.context = 1;
  what.other = 0;
  m.world.now += 5 * second;
  check_said(m.said(), {"Rank 2 keeps the others waiting.", "rank 3 has waited in #41 recv from rank 2 eval.cpp:20"});
}

TEST_CASE("tutti-flight: a receive from any rank has no sender that could be named") {
  made_up m{3};
  m.add(1, "recv_any", 2, m.world.now);
  m.world.now += 5 * second;
  const verdict v = m.judged();
  CHECK(v.what == finding::message);
  CHECK(v.suspected.empty());
  CHECK(nlohmann::json::parse(in_json(m.world, v))["verdict"] == "message");
  check_said(m.said(), {"Rank 1 waits for a message of any rank.\n", "rank 1 has waited in #41 recv_any eval.cpp:20"});
  m.fail(1, errc::timed_out, -1, m.world.now);
  check_said(m.said(), {"Rank 1 was waiting for a message of any rank when the world failed (timed out).\n"});
}

TEST_CASE("tutti-flight: a sender of which nothing is known is not accused") {
  made_up m{3};
  m.add(1, "recv", 2, m.world.now).what.other = 2;
  m.world.now += 5 * second;
  m.world.ranks.pop_back();
  m.world.missing = absence::elsewhere;
  CHECK(m.judged().what == finding::elsewhere);
  CHECK(m.judged().suspected == std::vector<int>{2});
}

TEST_CASE("tutti-flight: of the worlds of a job, the newest in which a rank is stuck is shown, else the newest") {
  made_up host{3}, device{3};
  for (auto& r : device.world.ranks) r.flight.joined = second;
  device.world.ranks[0].flight.number = 2;
  const auto chosen = [&] { return choose_world({host.world, device.world}, std::chrono::seconds{1}); };
  CHECK(chosen().ranks[0].flight.number == 2);
  host.add(1, "barrier", 1, host.world.now);
  host.world.now += 5 * second;
  CHECK(chosen().ranks[0].flight.number == 1);
  // One that has failed is over.
  host.fail(1, errc::timed_out, 0, host.world.now);
  CHECK(chosen().ranks[0].flight.number == 2);
}

TEST_CASE("tutti-flight: ranks of which nothing is known are not accused, unless they left no recording") {
  made_up m{3};
  for (const int r : {0, 1}) m.add(r, "all_reduce", 1, m.world.now);
  m.world.now += 5 * second;
  m.world.ranks.pop_back();
  m.world.missing = absence::elsewhere;
  const verdict v = m.judged();
  CHECK(v.what == finding::elsewhere);
  CHECK(v.suspected == std::vector<int>{2});
  CHECK(v.positions[0].waits_for.empty());
  check_said(m.said(), {"The ranks of this machine wait for rank 2, of which nothing is known here.",
                        "rank 2 is not known here: it runs on another machine, or has ended"});
  m.world.ranks[1].process = process_state::stopped;
  CHECK(m.judged().suspected == std::vector<int>{1});
}

TEST_CASE("tutti-flight: what a recording says about ranks that its world has not is not believed") {
  made_up m{3};
  m.add(0, "all_reduce", 1, m.world.now);
  m.fail(0, errc::peer_lost, 7, m.world.now + second);
  CHECK(m.judged().suspected == std::vector<int>{1, 2});
  // A clock that is behind that of the rank's machine.
  made_up late{2};
  for (const int r : {0, 1}) late.of(r).taken = begin;
  late.add(0, "all_reduce", 1, late.world.now);
  CHECK(late.judged().positions[0].since == 0);
  CHECK(late.judged().positions[1].since == 0);
}

TEST_CASE("tutti-flight: a recording of another size, and a second one of the same rank, are left out and named") {
  using tutti::watch::flight_recorder;
  const tutti_test::temporary_directory home;
  const std::string folder = home.path().string();
  {
    flight_recorder zero{0, 2}, one{1, 2};
    zero.keep_in({folder, "job", 17, 1});
    one.keep_in({folder, "job", 17, 1});
    // As of a file that was damaged, or made to deceive: the same world with another size.
    flight_recorder other{3, 4};
    other.keep_in({folder, "job", 17, 1});
  }
  std::filesystem::copy_file(home.file("rank_1.ring"), home.file("rank_2.ring"));
  std::ofstream{home.file("rank_9.ring")} << "nothing";
  const auto worlds = load(folder);
  REQUIRE(worlds.size() == 1);
  CHECK(worlds[0].size == 2);
  CHECK(worlds[0].ranks.size() == 2);
  CHECK(worlds[0].others == 0);
  check_said(in_words(worlds[0], judge(worlds[0], std::chrono::seconds{1})),
             {"(rank_2.ring is a second recording of rank 1.)\n",
              "(rank_3.ring is of a world of 4 ranks, and others of the same world are of 2.)\n",
              "(rank_9.ring is no recording of this version.)\n"});
}

TEST_CASE("tutti-flight: the verdict as JSON says the same") {
  made_up m{4};
  for (const int r : {0, 1, 2}) m.add(r, "broadcast", 2, m.world.now);
  m.world.now += 12 * second;
  const auto read = nlohmann::json::parse(in_json(m.world, m.judged()));
  CHECK(read["verdict"] == "missing");
  CHECK(read["suspected"] == nlohmann::json::array({3}));
  CHECK(read["ranks"].size() == 4);
  CHECK(read["ranks"][0]["call"] == "#41 broadcast eval.cpp:20");
  CHECK(read["text"] == m.said());
}

}  // namespace
