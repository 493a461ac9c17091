#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/watch/dump.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/flight_recorder.hpp>

#include "support/temporary_directory.hpp"

namespace {

using namespace tutti::watch;
using tutti::algorithm;
using tutti::dtype;
using tutti::errc;
using here = std::source_location;

constexpr call_kind all_reduce = call_kind::of("all_reduce");

std::uint64_t issue(flight_recorder& r, std::uint64_t sequence, const here& where = here::current()) {
  return r.issue(issued_operation{all_reduce, 1000, 4, dtype::f32}
                     .reduction(tutti::reduction_kind::max)
                     .place(sequence, 0, algorithm::ring),
                 where);
}
flight copy(const flight_recorder& r) { return copy_of(r.memory(), tutti::os::read_clocks(), true); }

/// The recording in a file, as another process reads it.
std::unique_ptr<recording> read_file(const std::string& path) {
  auto r = std::make_unique<recording>();
  std::ifstream{path, std::ios::binary}.read(reinterpret_cast<char*>(r.get()), sizeof *r);
  return r;
}

TEST_CASE("flight_recorder: an operation is recorded with its call, place, times and call site") {
  flight_recorder r{3, 4};
  const auto before = tutti::os::read_clocks().wall;
  const auto id = issue(r, 41);
  CHECK(copy(r).entries.at(0).what.state == progress::scheduled);
  r.started(id);
  CHECK(copy(r).entries.at(0).what.state == progress::started);
  r.proceeded(id);
  r.ended(id, {});
  const flight f = copy(r);
  CHECK(f.rank == 3);
  CHECK(f.size == 4);
  REQUIRE(f.entries.size() == 1);
  const auto& [what, issued, started, ended] = f.entries[0];
  CHECK(std::string(what.call.name()) == "all_reduce");
  CHECK(what.state == progress::completed);
  CHECK(what.count == 1000);
  CHECK(what.element_bytes == 4);
  CHECK(what.type == dtype::f32);
  CHECK(what.reduction == tutti::reduction_kind::max);
  CHECK(what.sequence == 41);
  CHECK(what.context == 0);
  CHECK(what.via == algorithm::ring);
  CHECK(what.other == -1);
  CHECK(issued <= started);
  CHECK(started <= ended);
  // By the same clock, to within what two readings of it allow.
  CHECK(issued > before - 100'000'000);
  CHECK(ended < f.taken + 100'000'000);
  CHECK(f.sites.at(what.site).file == __FILE__);
  CHECK(f.sites.at(what.site).line > 0);
}

TEST_CASE("flight_recorder: every field of a record survives, up to its limits") {
  flight_recorder r{0, 2};
  r.issue(issued_operation{call_kind::of("recv"), std::uint64_t{1} << 39U, 1U << 20U, dtype::c128}
              .other(7)
              .tag(0xfffffffeU)
              .place((std::uint64_t{1} << 48U) - 1, 0x7fff, algorithm::pairwise),
          here::current());
  const operation o = copy(r).entries.at(0).what;
  CHECK(o.call.is_message());
  CHECK(o.count == std::uint64_t{1} << 39U);
  CHECK(o.element_bytes == 1U << 20U);
  CHECK(o.type == dtype::c128);
  CHECK(o.other == 7);
  CHECK(o.tag == 0xfffffffeU);
  CHECK(o.sequence == (std::uint64_t{1} << 48U) - 1);
  CHECK(o.context == 0x7fff);
  CHECK(o.via == algorithm::pairwise);
  CHECK_FALSE(o.reduction.has_value());
}

TEST_CASE("flight_recorder: the collectives of a bucket are marked, those of a group that were issued since a moment") {
  flight_recorder r{0, 2};
  issue(r, 1);
  const auto since = tutti::os::ticks_now();
  const auto other = r.issue(issued_operation{all_reduce, 1, 4, dtype::f32}.place(1, 3, {}), here::current());
  const auto message = r.issue(
      issued_operation{call_kind::of("send"), 1, 4, dtype::f32}.other(1).tag(9).place(1, 0, {}), here::current());
  issue(r, 2);
  const auto last = issue(r, 3);
  CHECK(r.mark_bucket(0, since, 4) == last);
  CHECK(r.mark_bucket(7, since, 5) == 0);
  CHECK(r.mark_bucket(0, tutti::os::ticks_now() + 1, 5) == 0);
  std::vector<std::int64_t> buckets;
  for (const auto& e : copy(r).entries) buckets.push_back(e.what.bucket());
  CHECK(buckets == std::vector<std::int64_t>{-1, -1, -1, 4, 4});
  CHECK(r.find(other).bucket() == -1);
  CHECK(r.find(message).tag == 9);
  CHECK(r.find(last).reduction == tutti::reduction_kind::max);
  CHECK(r.find(last).other == -1);
  CHECK(r.find(last + 1).id == 0);
}

TEST_CASE("flight_recorder: keeps the last operations, and those in flight") {
  flight_recorder r{0, 2};
  const auto kept = issue(r, 1);
  for (std::uint64_t n = 2; n < 3 * recording::records_kept; ++n) r.ended_at_once(issue(r, n));
  const flight f = copy(r);
  CHECK(f.entries.size() == recording::records_kept);
  CHECK(f.entries.front().what.id == kept);
  CHECK(f.entries.front().what.state == progress::scheduled);
  CHECK(f.entries.back().what.sequence == 3 * recording::records_kept - 1);
  CHECK(f.entries[1].what.sequence >= 2 * recording::records_kept - 1);
  r.ended(kept, {});
  CHECK(copy(r).entries.front().what.state == progress::completed);
}

TEST_CASE("flight_recorder: an operation that was overwritten is not written to when it ends") {
  flight_recorder r{0, 2};
  std::vector<std::uint64_t> ids;
  for (std::uint64_t n = 1; n <= recording::records_kept + 100; ++n) ids.push_back(issue(r, n));
  for (const auto id : ids) r.ended(id, {});
  for (const flight::entry& e : copy(r).entries) CHECK(e.what.state == progress::completed);
}

TEST_CASE("flight_recorder: call sites beyond the table, and groups beyond the list, are unknown but harmless") {
  flight_recorder r{1, 2};
  const std::array<int, 2> members{1, 0};
  for (std::uint32_t c = 1; c < 20000; ++c) r.note_group(c, members);
  r.issue(issued_operation{all_reduce, 1, 4, dtype::f32}.place(1, 9, algorithm::automatic), here::current());
  r.issue(issued_operation{all_reduce, 1, 4, dtype::f32}.place(1, 19999, algorithm::automatic), here::current());
  const flight f = copy(r);
  REQUIRE(f.group_of(f.entries[0].what));
  CHECK(f.group_of(f.entries[0].what)->ranks == std::vector<int>{1, 0});
  REQUIRE(f.group_of(f.entries[1].what));
  CHECK(f.group_of(f.entries[1].what)->ranks.empty());
  CHECK(nlohmann::json::parse(json_of(f))["pg_config"]["19999"]["ranks"] == "[]");
}

TEST_CASE("flight_recorder: a failure is noted once, with the rank at fault, and dumped into the folder") {
  const tutti_test::temporary_directory folder;
  flight_recorder r{0, 2};
  r.keep_in({folder.path().string(), "job", 17, 1});
  r.ended_at_once(issue(r, 1));
  const auto id = issue(r, 2), other = issue(r, 3);
  r.ended(id, {errc::peer_lost, 0, 1, 0});
  r.ended(other, {errc::aborted, 0, 0, 0});
  const flight f = copy(r);
  CHECK(f.failure == errc::peer_lost);
  CHECK(f.failed_peer == 1);
  CHECK(f.failed != 0);
  std::ifstream file{folder.file("rank_0.json")};
  const auto json = nlohmann::json::parse(file);
  CHECK(json["version"] == "2.10");
  CHECK(json["tutti"]["reason"] == "failure");
  CHECK(json["tutti"]["failed_rank"] == 1);
  CHECK(json["tutti"]["job"] == "job");
  REQUIRE(json["entries"].size() == 3);
  CHECK(json["entries"][0]["state"] == "completed");
  CHECK(json["entries"][1]["tutti"]["error"] == "peer lost");
  CHECK(json["entries"][2]["state"] == "scheduled");  // when the world failed
  CHECK(std::filesystem::exists(folder.file("flight_0")));
}

TEST_CASE("flight_recorder: the file in its folder is up to date at any time, and tells whether the rank has left") {
  const tutti_test::temporary_directory folder;
  {
    flight_recorder r{1, 2};
    r.keep_in({folder.path().string(), "job", 17, 2});
    issue(r, 5);
    const flight f = copy_of(*read_file(folder.file("rank_1.world2.ring")), tutti::os::read_clocks(), true);
    CHECK(f.rank == 1);
    CHECK(f.number == 2);
    CHECK(f.world == 17);
    CHECK(f.boot == kernel_and_pids());
    CHECK(f.left == 0);
    REQUIRE(f.entries.size() == 1);
    CHECK(f.entries[0].what.sequence == 5);
    CHECK(f.entries[0].what.state == progress::scheduled);
  }
  CHECK(copy_of(*read_file(folder.file("rank_1.world2.ring")), tutti::os::read_clocks(), true).left != 0);
}

/// The descriptor that leads to a recording in memory; empty if there is none.
std::string descriptor_of_memory() {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code none;
    if (std::filesystem::read_symlink(entry.path(), none) == "/memfd:tutti-flight (deleted)") found = entry.path();
  }
  return found;
}

TEST_CASE("flight_recorder: without a folder, a descriptor leads to the recording, which nobody can cut off") {
  flight_recorder r{1, 2};
  r.keep_in({"", "job", 17, 2});
  issue(r, 5);
  const std::string found = descriptor_of_memory();
  REQUIRE(!found.empty());
  const flight f = copy_of(*read_file(found), tutti::os::read_clocks(), true);
  CHECK(f.world == 17);
  REQUIRE(f.entries.size() == 1);
  CHECK(f.entries[0].what.sequence == 5);
  std::error_code why;
  std::filesystem::resize_file(found, 0, why);
  CHECK(why.value() == EPERM);
}

TEST_CASE("flight_recorder: a folder that takes no file leaves the recording in memory, where others can read it") {
  flight_recorder r{0, 1};
  CHECK_THROWS_AS(r.keep_in({"/nowhere/at/all", "", 23, 1}), tutti::error);
  issue(r, 1);
  CHECK(copy(r).entries.size() == 1);
  const std::string found = descriptor_of_memory();
  REQUIRE(!found.empty());
  CHECK(copy_of(*read_file(found), tutti::os::read_clocks(), true).world == 23);
}

TEST_CASE(
    "flight_recorder: a file that cannot take its place leaves the recording in memory, and nothing in the folder") {
  const tutti_test::temporary_directory folder;
  std::filesystem::create_directories(folder.file("rank_0.ring/taken"));
  flight_recorder r{0, 1};
  CHECK_THROWS_AS(r.keep_in({folder.path().string(), "", 0, 1}), tutti::error);
  CHECK(!descriptor_of_memory().empty());
  issue(r, 1);
  CHECK(copy(r).entries.size() == 1);
  r.ended(1, {errc::peer_lost, 0, 0, 0});  // dumps into a folder that the recorder is kept in
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) left.push_back(entry.path().filename());
  CHECK(left == std::vector<std::string>{"rank_0.ring"});
}

TEST_CASE("flight_recorder: a limit of files' size is an error, not a signal, and the recording stays in memory") {
  const tutti_test::temporary_directory folder;
  flight_recorder r{0, 1};
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{sizeof(recording) - 1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS_AS(r.keep_in({folder.path().string(), "", 0, 1}), tutti::error);
  CHECK_NOTHROW(r.keep_in({"", "", 0, 1}));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  issue(r, 1);
  CHECK(copy(r).entries.size() == 1);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("flight_recorder: a signal of the user's choice dumps at the next tick") {
  const tutti_test::temporary_directory folder;
  flight_recorder r{0, 1};
  r.keep_in({folder.path().string(), "", 0, 1});
  flight_recorder::dump_on(SIGWINCH);
  flight_recorder::dump_on(SIGWINCH);  // by a second world of the process
  r.tick(tutti::clock::now());
  CHECK_FALSE(std::filesystem::exists(folder.file("flight_0")));
  std::raise(SIGWINCH);
  r.tick(tutti::clock::now());
  CHECK(std::filesystem::exists(folder.file("flight_0")));
  std::signal(SIGWINCH, SIG_DFL);
  CHECK_THROWS_AS(flight_recorder::dump_on(SIGKILL), tutti::usage_error);
  CHECK_THROWS_AS(flight_recorder::dump_on(SIGSEGV), tutti::usage_error);
  std::signal(SIGUSR1, [](int) {});
  CHECK_THROWS_AS(flight_recorder::dump_on(SIGUSR1), tutti::usage_error);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("flight_recorder: a handler of the program stays as it was, with its flags and mask") {
  struct sigaction own{}, before{}, after{};
  own.sa_sigaction = [](int, siginfo_t*, void*) {};
  own.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaddset(&own.sa_mask, SIGUSR2);
  REQUIRE(::sigaction(SIGUSR1, &own, &before) == 0);
  CHECK_THROWS_AS(flight_recorder::dump_on(SIGUSR1), tutti::usage_error);
  REQUIRE(::sigaction(SIGUSR1, &before, &after) == 0);
  CHECK((after.sa_sigaction == own.sa_sigaction));
  CHECK((after.sa_flags & (SA_SIGINFO | SA_NODEFER | SA_RESTART)) == own.sa_flags);
  CHECK(::sigismember(&after.sa_mask, SIGUSR2) == 1);
}

TEST_CASE("flight_recorder: a copy that is read on a machine whose clock is behind is not older than the recording") {
  flight_recorder r{0, 2};
  const auto id = issue(r, 1);
  auto now = tutti::os::read_clocks();
  r.tick(tutti::clock::now());
  now.wall -= 100'000'000'000;
  const flight f = copy_of(r.memory(), now, false);
  CHECK(f.taken >= f.entries.at(0).issued);
  CHECK(f.taken > now.wall);
  CHECK(copy_of(r.memory(), now, true).taken == now.wall);
  r.ended(id, {});
}

TEST_CASE("flight_recorder: other threads read while one records") {
  flight_recorder r{0, 2};
  std::atomic<bool> stop{false};
  std::thread reader{[&] {
    while (!stop.load())
      for (const flight::entry& e : copy(r).entries) {
        // A record that is torn would mix two operations: count and sequence are equal here.
        if (e.what.count != e.what.sequence) FAIL_CHECK("torn record " << e.what.id);
      }
  }};
  for (std::uint64_t n = 1; n < 200'000; ++n)
    r.ended_at_once(
        r.issue(issued_operation{all_reduce, n, 4, dtype::f32}.place(n, 0, algorithm::direct), here::current()));
  stop.store(true);
  reader.join();
}

}  // namespace
