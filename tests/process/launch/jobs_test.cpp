#include <doctest/doctest.h>
#include <tutti/core/status.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

// Jobs that share a machine, and what earlier ones have left.
namespace {
using namespace tutti_test;
}

TEST_CASE("64 jobs at the same time on one machine do not meet each other") {
  const auto before = shared_memory_names();
  processes jobs;
  for (int i = 0; i < 64; ++i)
    jobs.start(launched(2, "join", {"hold=50"}, {i % 2 == 0 ? "TUTTI_TRANSPORT=shm" : "TUTTI_TRANSPORT=tcp"}));
  const auto all = jobs.wait(std::chrono::seconds{100});
  for (const auto& job : all) {
    CHECK_MESSAGE(job.status == 0, job.out);
    CHECK_MESSAGE(occurrences(job.out, "of 2 local") == 2, job.out);
    CHECK_MESSAGE(occurrences(job.out, "sum 3 inherit 0 ") == 2, job.out);
  }
  check_nothing_left("no job of ours");
  CHECK(shared_memory_names() == before);
}

TEST_CASE("tutti-run names the rank that failed by itself, not those that it told, which end before it") {
  for (const char* transport : {"transport=shm", "transport=tcp"}) {
    processes job;
    job.start({tutti_run(), {"-n", "3", "--settle", "50", "--", program("stream"), transport, "late=1"}, {}});
    const auto all = job.wait(std::chrono::seconds{60});
    const std::string text = all_text(all);
    CAPTURE(text);
    CHECK(all[0].status == 42);
    CHECK(contains(text, "tutti-run: rank 2 (pid "));
    CHECK(contains(text, "s after the start: exit code 42\n"));
    CHECK(contains(text, " ended before it, but had been told of its failure\n"));
    CHECK(occurrences(text, " earlier)") == 2);
  }
}

TEST_CASE("tutti-run ends a job in which one rank cannot meet the others, and names that rank") {
  temporary_directory folder;
  for (const char* name : {"secret", "other"}) {
    std::ofstream{folder.file(name)} << std::string(32, *name);
    std::filesystem::permissions(folder.file(name), std::filesystem::perms{0600});
  }
  const std::string place = "TUTTI_RENDEZVOUS=tcp://localhost:" + std::to_string(free_port());
  const std::string secret = "TUTTI_SECRET_FILE=" + folder.file("secret");
  struct wrong {
    std::string variable, words;
  };
  for (const wrong& w : {wrong{"TUTTI_SECRET_FILE=" + folder.file("other"), "do not have the same secret of the job"},
                         wrong{"TUTTI_RENDEZVOUS=tcp://no-such-name.invalid:1", "no-such-name.invalid"}}) {
    CAPTURE(w.variable);
    processes job;
    // The join timeout is far beyond the time that the test has: nobody may wait for it.
    job.start({tutti_run(),
               {"-n", "3", "--settle", "0.1", "--", "/bin/sh", "-c",
                "export " + place + " " + secret + "; [ $RANK = 1 ] && export " + w.variable + "; exec \"$@\"", "sh",
                program("join"), "join=200000", "transport=tcp"},
               {}});
    const auto all = job.wait();
    const std::string text = all_text(all);
    CAPTURE(text);
    CHECK(all[0].status == 1);
    CHECK(contains(text, "[1] error kind "));
    CHECK(contains(text, w.words));
    CHECK(contains(text, "tutti-run: rank 1 (pid "));
    CHECK(contains(text, "ended by tutti-run with SIGTERM: ranks 0, 2\n"));
  }
}

TEST_CASE("what killed jobs leave at a rendezvous does not disturb the next one") {
  temporary_directory folder;
  std::string url;
  SUBCASE("file") { url = "file://" + folder.file("meet"); }
  SUBCASE("Unix socket in the file system") { url = "unix:" + folder.file("meet"); }
  SUBCASE("tcp") { url = "tcp://127.0.0.1:" + std::to_string(free_port()); }
  for (int i = 0; i < 10; ++i) {
    {
      // Killed while they wait for a third, in the middle of things.
      processes killed;
      start_ranks(killed, "join", 2, [&](int r) { return rank_words{{at(url, r, 3), "join=60000"}, {}}; });
      std::this_thread::sleep_for(std::chrono::milliseconds{20 + 15 * i});
    }
    check_joined(run_ranks("join", 2, [&](int r) { return rank_words{{at(url, r, 2)}, {}}; }), 2);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("a file or socket that is somebody else's stays as it is") {
  temporary_directory folder;
  std::ofstream{folder.file("letter")} << "dear reader";
  for (const char* scheme : {"file://", "unix:"}) {
    const std::string url = scheme + folder.file("letter");
    CAPTURE(url);
    const auto all = run_ranks("join", 2, [&](int r) { return rank_words{{at(url, r, 2), "join=700"}, {}}; });
    for (const auto& r : all) CHECK_MESSAGE(r.status == 1, r.out);
    std::ifstream file{folder.file("letter")};
    std::string text;
    std::getline(file, text);
    CHECK(text == "dear reader");
  }
}

TEST_CASE("failed worlds leave nothing either") {
  temporary_directory folder;
  for (const std::string& url : {"file://" + folder.file("f"), "unix:" + folder.file("u")}) {
    const auto all = run_ranks("join", 2, [&](int r) { return rank_words{{at(url, r, 3), "join=300"}, {}}; });
    check_refused(all, static_cast<int>(tutti::errc::rendezvous), {"absent: 2"});
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}
