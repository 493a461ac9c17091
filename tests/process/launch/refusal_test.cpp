#include <doctest/doctest.h>
#include <tutti/core/status.hpp>
#include <tutti/store/tcp_store.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "process/worlds.hpp"
#include "support/grid.hpp"
#include "support/temporary_directory.hpp"

// Every way in which processes can fail to be a world: all of them say so, with the same names, and none waits long.
namespace {

using namespace tutti_test;

constexpr int rendezvous = static_cast<int>(tutti::errc::rendezvous);
constexpr int protocol = static_cast<int>(tutti::errc::protocol);

/// The kinds of rendezvous, each new.
std::vector<std::string> places(const temporary_directory& folder) {
  const std::string name = unique_name();
  return {"tcp://127.0.0.1:" + std::to_string(free_port()), "file://" + folder.file(name), "unix:@" + name};
}

/// The pids that are named in what all say.
void check_names_two(const reports& all) {
  const std::string& text = all.front().out;
  CHECK_MESSAGE(occurrences(text, "pid ") >= 2, text);
  CHECK_MESSAGE(occurrences(text, "host ") >= 2, text);
}

}  // namespace

TEST_CASE("four processes in a world of two: all four fail") {
  temporary_directory folder;
  for (const std::string& url : places(folder)) {
    CAPTURE(url);
    // The join timeout is far beyond the time that the test has: nobody may wait for it.
    const auto twice = run_ranks("join", 4, [&](int r) { return rank_words{{at(url, r % 2, 2), "join=200000"}, {}}; });
    check_refused(twice, rendezvous, {"claim the same rank"});
    check_names_two(twice);
    const auto beyond = run_ranks("join", 4, [&](int r) {
      return rank_words{{"rendezvous=" + url, "rank=" + std::to_string(r), "world=2", "join=200000"}, {}};
    });
    check_refused(beyond, rendezvous, {"one too many"});
    check_names_two(beyond);
  }
  check_nothing_left(our_names());
}

TEST_CASE("RANK beyond WORLD_SIZE in the environment: all fail") {
  const std::string port = std::to_string(free_port());
  const auto all = run_ranks("join", 4, [&](int r) {
    return rank_words{{"join=200000"},
                      {"RANK=" + std::to_string(r), "WORLD_SIZE=2", "LOCAL_RANK=" + std::to_string(r),
                       "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port}};
  });
  check_refused(all, rendezvous, {"one too many"});
}

TEST_CASE("world sizes that differ: all fail") {
  temporary_directory folder;
  for (const std::string& url : places(folder)) {
    CAPTURE(url);
    const auto all =
        run_ranks("join", 4, [&](int r) { return rank_words{{at(url, r, r == 3 ? 8 : 4), "join=200000"}, {}}; });
    check_refused(all, rendezvous, {"disagree about the number of ranks", "of 4 (", "of 8 ("});
    check_names_two(all);
  }
}

TEST_CASE("one rank that cannot read what it was given: all fail, with its words") {
  temporary_directory folder;
  std::ofstream{folder.file("table")} << "tutti tuning 1\nall_reduce messages * * sing\n";
  std::ofstream{folder.file("secret")} << std::string(32, 'x');
  std::filesystem::permissions(folder.file("secret"), std::filesystem::perms{0644});
  struct wrong {
    std::string variable, words;
  };
  for (const wrong& w : {wrong{"TUTTI_TUNING=" + folder.file("table"), "line 2: all_reduce has no algorithm \"sing\""},
                         wrong{"TUTTI_TUNING=" + folder.file("none"), "none\" cannot be read"},
                         wrong{"TUTTI_TRANSPORT=pigeon", "\"pigeon\" is not shm, tcp or automatic"},
                         wrong{"TUTTI_CONNECTIONS=17", "\"17\" is not a number from 1 to 16"},
                         wrong{"TUTTI_ENCRYPTION=rot13", "\"rot13\" is not none or tls"},
                         wrong{"TUTTI_SECRET_FILE=" + folder.file("secret"), "others may read it"}})
    for (const std::string& url : places(folder)) {
      const bool secret = w.variable.starts_with("TUTTI_SECRET");
      if (url.starts_with("tcp") && secret) continue;
      for (const int who : {0, 2}) {
        CAPTURE(w.variable);
        CAPTURE(url);
        const auto all = run_ranks("join", 3, [&](int r) {
          // Only TCP asks for a secret.
          return rank_words{{at(url, r, 3), "join=200000", secret ? "transport=tcp" : "transport="},
                            {r == who ? w.variable : "TUTTI_ODD=1"}};
        });
        const std::string text = all_text(all), own = "rank " + std::to_string(who) + " of 3 (";
        CAPTURE(text);
        for (int r = 0; r < 3; ++r) {
          const auto& one = all[static_cast<std::size_t>(r)];
          CHECK(one.status != 0);
          CHECK(contains(one.out, w.words));
          if (r != who) CHECK(contains(one.out, own));
          if (r != who) CHECK(contains(one.out, ") cannot join: "));
        }
      }
    }
  check_nothing_left(our_names());
}

TEST_CASE("too few descriptors for shared memory: all fail for that, and nobody is taken for dead") {
  if (slow) return;  // sanitizers need descriptors of their own
  int failed = 0;
  for (int limit = 8; limit <= 13; ++limit) {
    const std::string url = "unix:@" + unique_name();
    processes all;
    for (int r = 0; r < 3; ++r)
      all.start({"/bin/sh",
                 {"-c", "ulimit -n " + std::to_string(limit) + "; exec \"$@\"", "sh", program("join"), at(url, r, 3),
                  "transport=shm", "join=200000"},
                 {}});
    const auto reports = all.wait();
    const std::string text = all_text(reports);
    CAPTURE(limit);
    CAPTURE(text);
    CHECK(!contains(text, "died"));
    if (occurrences(text, "joined rank") == 3) continue;
    ++failed;
    for (const auto& r : reports) CHECK(contains(r.out, "error kind 9 "));
    CHECK(contains(text, "Too many open files (raise the limit: ulimit -n)"));
  }
  CHECK(failed > 0);
}

TEST_CASE("versions that differ: all fail") {
  temporary_directory folder;
  for (const char* difference : {"patch=1", "protocols=1"})
    for (const std::string& url : places(folder)) {
      CAPTURE(url);
      processes mixed;
      for (int r = 0; r < 3; ++r) {
        const std::string which = r == 2 ? "claim" : "join";
        std::vector<std::string> words{at(url, r, 3), "join=200000"};
        if (r == 2) words = {"rendezvous=" + url, "rank=2", "world=3", "join=200000", difference};
        mixed.start({program(which), words, {}});
      }
      const auto all = mixed.wait();
      check_refused(all, protocol, {"different versions", "rank 2 of 3"});
      check_names_two(all);
    }
}

TEST_CASE("transports that differ: all fail") {
  const std::string name = unique_name();
  const auto all = run_ranks("join", 3, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 3), "join=200000"},
                      {r == 1 ? "TUTTI_TRANSPORT=tcp" : "TUTTI_TRANSPORT=shm"}};
  });
  check_refused(all, rendezvous, {"different transports"});
}

TEST_CASE("numbers of connections that differ: all fail") {
  const std::string name = unique_name();
  const auto all = run_ranks("join", 3, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 3), "join=200000"}, {r == 1 ? "TUTTI_CONNECTIONS=2" : "TUTTI_ODD=1"}};
  });
  check_refused(all, rendezvous, {"connections to each peer"});
}

TEST_CASE("ranks that were told differently whether to encrypt, or that have no secret: all fail") {
  std::string name = unique_name();
  auto all = run_ranks("join", 3, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 3), "join=200000", "transport=tcp"},
                      {r == 1 ? "TUTTI_ENCRYPTION=tls" : "TUTTI_ENCRYPTION=none"}};
  });
  check_refused(all, rendezvous, {"told differently whether to encrypt", "TUTTI_ENCRYPTION"});
  name = unique_name();
  all = run_ranks("join", 2, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 2), "join=200000", "transport=tcp"}, {"TUTTI_ENCRYPTION=tls"}};
  });
  for (const auto& r : all) {
    CHECK(r.status != 0);
    CHECK_MESSAGE(contains(r.out, "has no secret: give all ranks the same one"), r.out);
  }
}

TEST_CASE("two jobs at one place: all fail, and both are named") {
  temporary_directory folder;
  for (const std::string& url : places(folder)) {
    CAPTURE(url);
    const auto all = run_ranks("join", 4, [&](int r) {
      return rank_words{{at(url, r, 4), r < 2 ? "job=one" : "job=two", "join=200000"}, {}};
    });
    check_refused(all, rendezvous, {"two jobs", "\"one\"", "\"two\""});
    check_names_two(all);

    // Each has all of its ranks, but they are mixed up.
    processes both;
    for (const std::string job : {"job=one", "job=two"})
      start_ranks(both, "join", 2, [&](int r) {
        const bool late = r == (job == "job=one" ? 1 : 0);
        return rank_words{{at(url, r, 2), job, "join=200000", late ? "late=200" : "late=0"}, {}};
      });
    const auto mixed = both.wait();
    check_refused(mixed, rendezvous, {"two jobs", "\"one\"", "\"two\""});
    check_names_two(mixed);
  }
}

TEST_CASE("a process of another job that has come and says nothing holds nobody up") {
  const std::string port = std::to_string(free_port()), name = "unix:@" + unique_name();
  for (const bool tcp : {false, true}) {
    CAPTURE(tcp);
    const std::string url = tcp ? "tcp://127.0.0.1:" + port : name;
    processes world;
    // Whoever waits for the silent one waits longer than the test has.
    start_ranks(world, "join", 2, [&](int r) {
      return rank_words{{at(url, r, 2), "job=one", "join=200000", "late=" + std::to_string(500 * r)}, {}};
    });
    tutti::tcp_store_options other;
    other.rank = 1;
    other.world = 2;
    other.job = tutti::wire::job_id::of("two");
    const auto silent =
        tutti::tcp_store::connect(tcp ? "127.0.0.1:" + port : name, other, tutti::after(std::chrono::seconds{20}));
    check_joined(world.wait(), 2);
  }
}

TEST_CASE("ranks that never come are listed at the deadline") {
  temporary_directory folder;
  for (const std::string& url : places(folder)) {
    CAPTURE(url);
    const auto all =
        run_ranks("join", 3, [&](int r) { return rank_words{{at(url, r == 2 ? 4 : r, 5), "join=700"}, {}}; });
    check_refused(all, rendezvous, {"3 of 5 ranks came", "absent: 2, 3."});
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("without rank 0 there is no place to meet, and the others say so") {
  const std::string url = "tcp://127.0.0.1:" + std::to_string(free_port());
  const auto all = run_ranks("join", 2, [&](int r) { return rank_words{{at(url, r + 1, 3), "join=500"}, {}}; });
  check_refused(all, rendezvous, {"is rank 0 running there"});
}

TEST_CASE("a process that comes when the world is complete finds nobody, and changes nothing") {
  const std::string url = "unix:@" + unique_name();
  processes world;
  start_ranks(world, "join", 2, [&](int r) { return rank_words{{at(url, r, 2), "hold=1500"}, {}}; });
  REQUIRE(world.await(0, "joined"));
  const auto late = run_ranks("join", 1, [&](int) { return rank_words{{at(url, 1, 2), "join=500"}, {}}; });
  check_refused(late, rendezvous, {"is rank 0 running there", "the host's network", "MASTER_ADDR"});
  check_joined(world.wait(), 2);
}

TEST_CASE("a rank that cannot set up its links takes all others with it") {
  const std::string name = unique_name();
  const auto all = run_ranks("join", 3, [&](int r) {
    std::vector<std::string> words{at("unix:@" + name, r, 3), "transport=tcp", "join=200000"};
    if (r == 1) words.push_back("interface=no-such-interface");
    return rank_words{words, {}};
  });
  check_refused(all, rendezvous, {"no-such-interface"});
  CHECK(contains(all[0].out, "rank 1 of 3"));
  CHECK(contains(all[2].out, "cannot join"));
}

TEST_CASE("shared memory across machines is refused on all") {
  const std::string name = unique_name();
  const auto all = run_ranks("join", 3, [&](int r) {
    return rank_words{{at("unix:@" + name, r, 3), "transport=shm", "domain=" + std::to_string(r / 2), "join=200000"},
                      {}};
  });
  check_refused(all, rendezvous, {"cannot share memory"});
}

TEST_CASE("a network address without a secret is refused on all ranks at once") {
  const auto all = run_ranks("join", 2, [&](int r) {
    return rank_words{{at("tcp://192.0.2.1:29500", r, 2), "join=200000"}, {}};  // an address that no machine has
  });
  check_refused(all, static_cast<int>(tutti::errc::auth_failed), {"without a secret", "insecure"});
}

TEST_CASE("the refusal of a network without a secret says what to type for the launcher") {
  struct launched_by {
    std::vector<std::string> variables;
    std::string typed;
  };
  const std::string torch_variables[] = {"MASTER_ADDR=192.0.2.1", "MASTER_PORT=29500"};
  const std::vector<launched_by> all{
      {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_WORLD_SIZE=2"},
       "before torchrun: export"},
      {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}, "mpirun -x TUTTI_SECRET_FILE="},
      {{"PMI_RANK=1", "PMI_SIZE=2"}, "mpiexec -genv TUTTI_SECRET_FILE "},
      {{"RANK=1", "WORLD_SIZE=2"}, "tutti-run --hosts node1:4,node2:4"},
      {{"RANK=1", "WORLD_SIZE=2", "TUTTI_REPORT_FD=900", "TUTTI_RENDEZVOUS=tcp://192.0.2.1:29500"},
       "before tutti-run: export"}};
  for (const auto& one : all) {
    const auto done = run_ranks("join", 1, [&](int) {
      rank_words w{{"join=200000"}, one.variables};
      w.environment.insert(w.environment.end(), std::begin(torch_variables), std::end(torch_variables));
      return w;
    });
    check_refused(done, static_cast<int>(tutti::errc::auth_failed), {"without a secret", one.typed, "job.secret"});
  }
}

TEST_CASE("a rank that is killed while the others wait for it is missed within a second, not at the deadline") {
  for (const char* kind : {"unix:@", "file:///tmp/"}) {
    const std::string url = kind + unique_name();
    processes world;
    start_ranks(world, "join", 2, [&](int r) { return rank_words{{at(url, r, 3), "join=200000"}, {}}; });
    std::this_thread::sleep_for(std::chrono::milliseconds{400});
    world.signal(1, SIGKILL);
    const auto all = world.wait();
    CHECK(all[1].status == 128 + SIGKILL);
    check_refused({all[0]}, static_cast<int>(tutti::errc::peer_lost), {"rank 1 of 3", "died"});
  }
}

TEST_CASE("variables that contradict each other are an error of usage") {
  const auto all = run_ranks("join", 1, [&](int) { return rank_words{{}, {"RANK=0"}}; });
  CHECK(all.front().status == 2);
  CHECK(contains(all.front().out, "WORLD_SIZE"));
  const auto transport = run_ranks("join", 1, [&](int) { return rank_words{{}, {"TUTTI_TRANSPORT=carrier-pigeon"}}; });
  CHECK(transport.front().status == 2);
  CHECK(contains(transport.front().out, "carrier-pigeon"));
}
