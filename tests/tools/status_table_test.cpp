#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/watch/flight_recorder.hpp>

#include "support/temporary_directory.hpp"
#include "tutti-flight/verdict.hpp"
#include "tutti-run/status/jobs.hpp"
#include "tutti-run/status/recordings.hpp"
#include "tutti-run/status/table.hpp"

// Recordings that this process holds, as tutti-run --status finds and shows them.
namespace {

using namespace tutti::launch;
using namespace tutti::watch;
using tutti::flight_tool::choose_world;
using tutti::flight_tool::process_state;
using here = std::source_location;

constexpr call_kind all_reduce = call_kind::of("all_reduce"), barrier = call_kind::of("barrier");

/// Recorders of all ranks of a world, in this process.
struct world {
  std::vector<std::unique_ptr<flight_recorder>> ranks;

  explicit world(int size, const std::string& folder = "", std::uint32_t number = 1) {
    static std::uint64_t worlds = 0;
    ++worlds;
    for (int r = 0; r < size; ++r) {
      ranks.push_back(std::make_unique<flight_recorder>(r, size));
      ranks.back()->keep_in({folder, "job", mark() + worlds, number});
    }
  }
  void call(int rank, call_kind call, std::uint64_t sequence, bool ends) {
    flight_recorder& r = *ranks[static_cast<std::size_t>(rank)];
    const auto id =
        r.issue(issued_operation{call, 1000, 4, tutti::dtype::f32}.place(sequence, 0, tutti::algorithm::automatic),
                here::current());
    if (ends) r.ended(id, {});
  }
  static std::uint64_t mark() { return static_cast<std::uint64_t>(::getpid()) << 32U; }
};

/// The recordings of this process, and not those of another job of this machine.
held_ranks own() {
  held_ranks all = read_ranks();
  std::erase_if(all.recordings, [](const held_recording& one) { return one.pid != ::getpid(); });
  all.waiting.clear();
  return all;
}

TEST_CASE("tutti-run --status: the recordings of a process are found once each, with and without a folder") {
  const tutti_test::temporary_directory home;
  world first{2};
  const world second{1, home.path().string(), 2};
  first.call(1, all_reduce, 1, true);
  // A child has the same descriptors.
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const held_ranks all = own();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE(all.recordings.size() == 3);
  for (const auto& one : all.recordings) {
    CHECK(one.process == tutti::flight_tool::process_state::runs);
    CHECK(one.line.front() == ::getpid());
  }
  const auto newest = choose_world(worlds_of(all.recordings), std::chrono::seconds{1});
  CHECK(newest.size == 1);
  CHECK(newest.others == 2);
}

TEST_CASE("tutti-run --status: a child that has a rank's descriptors does not stand in for a rank that is gone") {
  const std::uint64_t mark = world::mark();
  std::array<int, 2> both{};
  REQUIRE(::pipe(both.data()) == 0);
  const pid_t rank = ::fork();
  if (rank == 0) {
    flight_recorder r{0, 2};
    r.keep_in({"", "job", mark, 1});
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    static_cast<void>(!::write(both[1], &child, sizeof child));
    ::pause();
    ::_exit(0);
  }
  pid_t child = 0;
  REQUIRE(::read(both[0], &child, sizeof child) == sizeof child);
  const auto found = [&] {
    held_ranks all = read_ranks();
    std::erase_if(all.recordings, [&](const held_recording& one) { return one.memory->head.world != mark; });
    return std::move(all.recordings);
  };
  const auto before = found();
  ::kill(rank, SIGKILL);
  ::waitpid(rank, nullptr, 0);
  const auto after = found();
  ::kill(child, SIGKILL);
  for (const int end : both) ::close(end);
  REQUIRE(before.size() == 1);
  CHECK(before[0].process == process_state::runs);
  REQUIRE(after.size() == 1);
  CHECK(after[0].process == process_state::gone);
  CHECK(after[0].pid == rank);
  CHECK(after[0].line.front() == child);
}

TEST_CASE("tutti-run --status: without a tutti-run, the worlds of a process on the host and on GPUs are one job") {
  world host{3}, device{3, "", 2};
  for (int r = 0; r < 3; ++r) device.call(r, all_reduce, 1, true);
  host.call(0, barrier, 1, false);
  host.call(2, barrier, 1, false);
  std::this_thread::sleep_for(std::chrono::milliseconds{1100});
  const running_job job = find_job(::getpid());
  CHECK(job.ranks.recordings.size() == 6);
  CHECK(status_table({own(), {}}, {}).text.starts_with("Rank 1 keeps the others waiting.\n"));
}

TEST_CASE(
    "tutti-run --status: a rank whose process runs, but whose recording cannot be read, has a line that says so") {
  world w{3};
  for (const int r : {0, 1}) w.call(r, barrier, 1, false);
  std::this_thread::sleep_for(std::chrono::milliseconds{1100});
  machine_ranks job{own(), {}};
  std::erase_if(job.ranks.recordings, [](const held_recording& one) { return one.memory->head.rank == 2; });
  waiting_rank hidden;
  hidden.rank = 2;
  hidden.size = 3;
  hidden.pid = 4711;
  hidden.process = process_state::runs;
  hidden.host = "node7";
  job.ranks.waiting.push_back(hidden);
  auto shown = status_table(job, {});
  CAPTURE(shown.text);
  CHECK(shown.text.starts_with("The other ranks wait for rank 2, whose process has no recording that can be read.\n"));
  CHECK(shown.text.find("\n2     node7") != std::string::npos);
  CHECK(shown.text.find("4711") != std::string::npos);
  CHECK(shown.text.find("no recording\n") != std::string::npos);
  const auto json = nlohmann::json::parse(status_json(job).text);
  CHECK(json["ranks"][2]["pid"] == 4711);
  CHECK(json["ranks"][2]["host"] == "node7");
  CHECK(json["ranks"][2]["state"] == "no recording");
  job.ranks.waiting[0].process = process_state::stopped;
  CHECK(status_table(job, {}).text.find("stopped\n") != std::string::npos);
  // A process of another size is in no line, but counted.
  job.ranks.waiting[0].size = 4;
  CHECK(status_table(job, {}).text.find("\n1 process of the job is in no world.\n") != std::string::npos);
}

TEST_CASE("tutti-run --status: what one machine tells another is the last operations, and those in flight") {
  world w{2};
  w.call(0, all_reduce, 1, false);
  for (std::uint64_t i = 2; i < 6000; ++i) w.call(0, all_reduce, i, true);
  const held_ranks all = own();
  const std::string bytes = encode(all);
  CHECK(bytes.size() < 100'000);
  held_ranks read;
  decode_ranks(bytes, read);
  REQUIRE(read.recordings.size() == 2);
  const auto there = choose_world(worlds_of(read.recordings), std::chrono::seconds{1});
  const auto& entries = there.ranks[0].flight.entries;
  CHECK(entries.size() == 513);
  CHECK(entries.front().what.sequence == 1);
  CHECK(entries.back().what.sequence == 5999);
  CHECK(entries.back().ended >= entries.back().issued);
  CHECK(there.ranks[0].flight.sites.size() == 2);
  CHECK(there.ranks[1].flight.entries.empty());
}

TEST_CASE("tutti-run --status: a rank that records while it is read is read without torn records") {
  world w{1};
  std::atomic<bool> stop{false};
  std::thread records{[&] {
    for (std::uint64_t i = 1; !stop; ++i) w.call(0, i % 2 == 0 ? all_reduce : barrier, i, true);
  }};
  for (int i = 0; i < 50; ++i) {
    const held_ranks all = own();
    REQUIRE(all.recordings.size() == 1);
    const auto read = choose_world(worlds_of(all.recordings), std::chrono::seconds{1});
    for (const auto& e : read.ranks[0].flight.entries)
      REQUIRE((e.what.call.number == all_reduce.number) == (e.what.sequence % 2 == 0));
  }
  stop = true;
  records.join();
}

TEST_CASE("tutti-run --status: the table names the rank for which others wait, and fits where it must") {
  world w{20};
  for (int r = 0; r < 20; ++r)
    for (std::uint64_t i = 1; i <= 5; ++i) w.call(r, all_reduce, i, true);
  for (int r = 0; r < 20; ++r)
    if (r != 13) w.call(r, barrier, 6, false);
  std::this_thread::sleep_for(std::chrono::milliseconds{1100});  // waits below a second are normal
  const machine_ranks job{own(), {"node7"}};
  const auto all = status_table(job, {});
  CAPTURE(all.text);
  CHECK(all.stuck);
  CHECK(all.text.starts_with("Rank 13 keeps the others waiting.\nnode7 has not answered.\nrank  machine"));
  CHECK(std::ranges::count(all.text, '\n') == 23);
  const auto small = status_table(job, {10, 40});
  CAPTURE(small.text);
  CHECK(std::ranges::count(small.text, '\n') <= 10);
  CHECK(small.text.find("\n13 ") != std::string::npos);
  CHECK(small.text.find("more ranks)") != std::string::npos);
  for (std::size_t at = 0; at < small.text.size();) {
    const auto end = small.text.find('\n', at);
    if (at > small.text.find("rank  ")) CHECK(end - at <= 40);
    at = end + 1;
  }
  const auto json = nlohmann::json::parse(status_json(job).text);
  CHECK(json["suspected"] == nlohmann::json::array({13}));
  CHECK(json["ranks"][4]["waits_for"] == nlohmann::json::array({13}));
  CHECK(json["silent_machines"] == nlohmann::json::array({"node7"}));
}

TEST_CASE("tutti-run --status: of two worlds of a job, the one in which a rank is stuck is shown") {
  world host{3}, device{3, "", 2};
  for (int r = 0; r < 3; ++r) device.call(r, all_reduce, 1, true);
  CHECK(status_table({own(), {}}, {}).text.find("after #1 all_reduce") != std::string::npos);
  host.call(0, barrier, 1, false);
  host.call(2, barrier, 1, false);
  std::this_thread::sleep_for(std::chrono::milliseconds{1100});
  const auto shown = status_table({own(), {}}, {});
  CHECK(shown.text.starts_with("Rank 1 keeps the others waiting.\n(3 recordings of other worlds are left out.)\n"));
}

TEST_CASE("tutti-run --status: ranks of machines that nothing is known of are not accused") {
  world w{3};
  w.call(0, barrier, 1, false);
  w.call(1, barrier, 1, false);
  std::this_thread::sleep_for(std::chrono::milliseconds{1100});
  held_ranks all = own();
  std::erase_if(all.recordings, [](const held_recording& one) { return one.memory->head.rank == 2; });
  const auto shown = status_table({std::move(all), {}}, {});
  CHECK(shown.text.starts_with("The ranks of this machine wait for rank 2, of which nothing is known here.\n"));
  CHECK(shown.text.find("not here") != std::string::npos);
}

}  // namespace
