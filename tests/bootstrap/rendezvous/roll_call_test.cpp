#include <doctest/doctest.h>
#include <tutti/bootstrap/rendezvous/roll_call.hpp>
#include <tutti/store/memory_store.hpp>
#include <tutti/store/text.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bootstrap/claim_of.hpp"
#include "support/forked_child.hpp"

namespace {

using tutti::errc;
using tutti::memory_store;
using tutti::roll_call;
using tutti::roll_call_claim;
using tutti::roll_call_options;
using tutti::roster;
using tutti_test::claim_of;
using namespace std::chrono_literals;

struct outcome {
  std::optional<roster> all;
  std::optional<tutti::error> failure;
};

roll_call_options within(tutti::duration d, tutti::duration settle = 30ms) {
  roll_call_options how;
  how.until = tutti::after(d);
  how.settle = settle;
  return how;
}

template <class Body>
std::vector<outcome> run(const std::vector<roll_call_claim>& claims, Body body, tutti::duration limit = 20s,
                         tutti::duration settle = 30ms) {
  memory_store store;
  std::vector<outcome> outcomes(claims.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < claims.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        roll_call<memory_store> call{store, claims[i], within(limit, settle)};
        outcomes[i].all = body(call, i);
      } catch (const tutti::error& e) {
        outcomes[i].failure = e;
      }
    });
  threads.clear();
  return outcomes;
}

std::vector<outcome> call_all(const std::vector<roll_call_claim>& claims, tutti::duration limit = 20s,
                              tutti::duration settle = 30ms) {
  return run(claims, [](auto& call, std::size_t) { return call.call(); }, limit, settle);
}

bool contains(const tutti::error& e, std::string_view part) {
  return std::string_view(e.what()).find(part) != std::string_view::npos;
}

/// All failed, for the same reason, which holds all of `parts`.
void check_all_failed(const std::vector<outcome>& outcomes, errc kind, const std::vector<std::string>& parts) {
  for (const outcome& o : outcomes) {
    REQUIRE(o.failure.has_value());
    CHECK(o.failure->kind() == kind);
    CHECK(std::string_view(o.failure->what()) == std::string_view(outcomes.front().failure->what()));
  }
  for (const std::string& part : parts)
    CHECK_MESSAGE(std::string(outcomes.front().failure->what()).find(part) != std::string::npos,
                  part << " is not in: " << outcomes.front().failure->what());
}

}  // namespace

TEST_CASE("all ranks get the same roster, with machines told apart by their memory domains") {
  const char* const domains[] = {"b", "a", "b", "c", "a", "b"};
  std::vector<roll_call_claim> claims;
  for (int r = 0; r < 6; ++r) claims.push_back(claim_of(r, 6, 100 + r, domains[r]));
  const auto outcomes = call_all({claims[3], claims[5], claims[0], claims[1], claims[2], claims[4]});
  const int local_rank[] = {0, 0, 1, 0, 1, 2}, local_size[] = {3, 2, 3, 1, 2, 3}, node[] = {0, 1, 0, 2, 1, 0};
  for (const outcome& o : outcomes) {
    REQUIRE(o.all.has_value());
    REQUIRE(o.all->size() == 6);
    for (int r = 0; r < 6; ++r) {
      const tutti::rank_info& p = (*o.all)[static_cast<std::size_t>(r)];
      CHECK(p.rank == r);
      CHECK(p.pid == 100 + r);
      CHECK(p.host == std::string("host") + domains[r]);
      CHECK(p.local_rank == local_rank[r]);
      CHECK(p.local_size == local_size[r]);
      CHECK(p.node_rank == node[r]);
    }
  }
}

TEST_CASE("a world of one calls its roll alone") {
  const auto outcomes = call_all({roll_call_claim::of_this_process(0, 1)}, 20s, 0ms);
  REQUIRE(outcomes.front().all.has_value());
  const tutti::rank_info& self = outcomes.front().all->front();
  CHECK(self.pid == ::getpid());
  CHECK(self.start_time == tutti::os::process_start_time(::getpid()));
  CHECK(self.memory_domain == tutti::os::memory_domain());
  CHECK(self.local_size == 1);
}

TEST_CASE("places and confirmation reach every rank") {
  std::vector<roll_call_claim> claims;
  for (int r = 0; r < 5; ++r) claims.push_back(claim_of(r, 5, 100 + r));
  const auto outcomes = run(claims, [](auto& call, std::size_t i) {
    roster all = call.call();
    tutti::rank_info mine = all[i];
    mine.endpoint = "10.0.0." + std::to_string(i) + ":4000";
    if (i == 0) mine.shared_memory = "@offer";
    call.exchange_places(all, mine);
    call.note_served();
    if (i == 0) call.await_served();
    call.confirm();
    return all;
  });
  for (const outcome& o : outcomes) {
    REQUIRE(o.all.has_value());
    for (std::size_t r = 0; r < 5; ++r) CHECK((*o.all)[r].endpoint == "10.0.0." + std::to_string(r) + ":4000");
    CHECK(o.all->front().shared_memory == "@offer");
    CHECK(o.all->back().shared_memory.empty());
  }
}

TEST_CASE("lists that do not fit into one value of a store go on in others") {
  constexpr std::size_t ranks = 24, bytes = 60000;  // 1.4 MB: three pieces
  std::vector<roll_call_claim> claims;
  for (std::size_t r = 0; r < ranks; ++r) claims.push_back(claim_of(static_cast<int>(r), ranks, 100));
  std::atomic<int> right{0};
  const auto outcomes = run(claims, [&](auto& call, std::size_t i) {
    roster all = call.call();
    const auto entries = call.exchange(tutti::detail::blob(bytes - i, static_cast<std::byte>(i)), bytes);
    bool good = entries.size() == ranks;
    for (std::size_t r = 0; good && r < ranks; ++r)
      good = entries[r] == tutti::detail::blob(bytes - r, static_cast<std::byte>(r));
    right += good;
    return all;
  });
  for (const outcome& o : outcomes) CHECK_FALSE(o.failure.has_value());
  CHECK(right == static_cast<int>(ranks));
}

TEST_CASE("every rank fails when the claims contradict each other") {
  std::vector<roll_call_claim> claims;
  SUBCASE("a world of two, launched with four processes, ranks twice") {
    for (int i = 0; i < 4; ++i) claims.push_back(claim_of(i % 2, 2, 100 + i));
    check_all_failed(call_all(claims, 20s, 2s), errc::rendezvous, {"claim the same rank", " of 2 (host hostm, pid 10"});
  }
  SUBCASE("ranks beyond the world") {
    for (int i = 0; i < 4; ++i) claims.push_back(claim_of(i, 2, 100 + i));
    check_all_failed(call_all(claims, 20s, 2s), errc::rendezvous, {"one too many", " of 2 (host hostm, pid 10"});
  }
  SUBCASE("world sizes differ") {
    for (int i = 0; i < 4; ++i) claims.push_back(claim_of(i, i < 2 ? 2 : 4, 100 + i));
    check_all_failed(call_all(claims, 20s, 2s), errc::rendezvous,
                     {"disagree about the number of ranks", "of 2 (", "of 4 ("});
  }
  SUBCASE("two jobs") {
    for (int i = 0; i < 4; ++i) claims.push_back(claim_of(i, 4, 100 + i));
    claims[3].job = tutti::wire::job_id::of("another");
    check_all_failed(call_all(claims), errc::rendezvous, {"two jobs", "rank 3 of 4 (host hostm, pid 103)"});
  }
  SUBCASE("versions of the library") {
    for (int i = 0; i < 3; ++i) claims.push_back(claim_of(i, 3, 100 + i));
    claims[1].version[2] += 1;
    check_all_failed(call_all(claims), errc::protocol, {"different versions", "rank 1 of 3 (host hostm, pid 101)"});
  }
  SUBCASE("versions of the protocols") {
    for (int i = 0; i < 3; ++i) claims.push_back(claim_of(i, 3, 100 + i));
    claims[2].protocols += 1;
    check_all_failed(call_all(claims), errc::protocol, {"different versions", "rank 2 of 3 (host hostm, pid 102)"});
  }
  SUBCASE("transports") {
    for (int i = 0; i < 3; ++i) claims.push_back(claim_of(i, 3, 100 + i));
    claims[0].links = 2;
    check_all_failed(call_all(claims), errc::rendezvous, {"different transports", "rank 0 of 3"});
  }
  SUBCASE("connections") {
    for (int i = 0; i < 3; ++i) claims.push_back(claim_of(i, 3, 100 + i));
    claims[1].connections = 4;
    check_all_failed(call_all(claims), errc::rendezvous, {"rank 1 of 3", "connections to each peer", "4"});
  }
  SUBCASE("encryption") {
    for (int i = 0; i < 3; ++i) claims.push_back(claim_of(i, 3, 100 + i));
    claims[2].encryption = 2;
    check_all_failed(call_all(claims), errc::rendezvous, {"rank 2 of 3", "TUTTI_ENCRYPTION"});
  }
  SUBCASE("tables of algorithms") {
    for (int i = 0; i < 3; ++i) claims.push_back(claim_of(i, 3, 100 + i));
    claims[2].tuning = 5;
    check_all_failed(call_all(claims), errc::rendezvous,
                     {"different tables of algorithms", "rank 2 of 3 (host hostm, pid 102)"});
  }
}

TEST_CASE("a surplus process that comes while the others settle fails all of them") {
  memory_store store;
  std::vector<outcome> outcomes(3);
  std::vector<std::jthread> threads;
  const auto join = [&](std::size_t i, roll_call_claim c) {
    try {
      outcomes[i].all = roll_call<memory_store>{store, std::move(c), within(60s, 50s)}.call();
    } catch (const tutti::error& e) {
      outcomes[i].failure = e;
    }
  };
  threads.emplace_back(join, 0, claim_of(0, 2, 100));
  threads.emplace_back(join, 1, claim_of(1, 2, 101));
  static_cast<void>(store.get("ranks/0", tutti::after(20s)));
  static_cast<void>(store.get("ranks/1", tutti::after(20s)));
  threads.emplace_back(join, 2, claim_of(1, 2, 102));
  threads.clear();
  check_all_failed(outcomes, errc::rendezvous, {"claim the same rank", "pid 101", "pid 102"});
}

TEST_CASE("who comes too late fails alone and hears who has his place") {
  memory_store store;
  CHECK(roll_call<memory_store>{store, claim_of(0, 1, 100), within(20s, 0ms)}.call().size() == 1);
  for (const auto& late : {claim_of(0, 1, 200), claim_of(1, 1, 200), claim_of(1, 2, 200)}) {
    try {
      static_cast<void>(roll_call<memory_store>{store, late, within(20s)}.call());
      FAIL("a second process got into a world of one");
    } catch (const tutti::error& e) {
      CHECK(e.kind() == errc::rendezvous);
      CHECK(contains(e, "pid 100"));
      CHECK(contains(e, "pid 200"));
      CHECK(contains(e, "goes on without it"));
    }
  }
}

TEST_CASE("at the deadline every rank that came names all that did not") {
  std::vector<roll_call_claim> claims;
  for (const int r : {0, 1, 3, 7}) claims.push_back(claim_of(r, 8, 100 + r));
  check_all_failed(call_all(claims, 300ms), errc::rendezvous, {"4 of 8 ranks came", "absent: 2, 4-6."});
  check_all_failed(call_all({claim_of(3, 4, 1)}, 50ms), errc::rendezvous, {"1 of 4 ranks came", "absent: 0-2."});
}

TEST_CASE("a rank that stops after the first round is named at the deadline") {
  const auto outcomes = run(
      {claim_of(0, 3, 100), claim_of(1, 3, 101), claim_of(2, 3, 102)},
      [](auto& call, std::size_t i) {
        roster all = call.call();
        if (i != 1) call.exchange_places(all, all[i]);
        return all;
      },
      500ms, 0ms);
  CHECK(outcomes[1].all.has_value());
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    REQUIRE(outcomes[i].failure.has_value());
    CHECK(outcomes[i].failure->kind() == errc::rendezvous);
    CHECK(outcomes[i].failure->peer() == 1);
    CHECK(contains(*outcomes[i].failure, "absent: 1."));
  }
}

TEST_CASE("a rank that cannot go on tells the others why") {
  const auto outcomes =
      run({claim_of(0, 3, 100), claim_of(1, 3, 101), claim_of(2, 3, 102)}, [](auto& call, std::size_t i) {
        roster all = call.call();
        if (i == 2) {
          CHECK_FALSE(call.fail({errc::out_of_resources}, "no memory\nleft"));
          CHECK_FALSE(call.fail({errc::rendezvous}, "it is known already"));
          return all;
        }
        call.exchange_places(all, all[i]);
        return all;
      });
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    REQUIRE(outcomes[i].failure.has_value());
    CHECK(outcomes[i].failure->kind() == errc::out_of_resources);
    CHECK(outcomes[i].failure->peer() == 2);
    CHECK(contains(*outcomes[i].failure, "rank 2 of 3 (host hostm, pid 102) cannot join: no memory?left"));
  }
}

TEST_CASE("a rank whose failure follows from another's hears that one's words") {
  std::atomic<bool> told{false};
  const auto outcomes = run({claim_of(0, 2, 100), claim_of(1, 2, 101)}, [&](auto& call, std::size_t i) {
    roster all = call.call();
    if (i == 0) {
      CHECK_FALSE(call.fail({errc::out_of_resources}, "no descriptors left"));
      told = true;
      told.notify_all();
      return all;
    }
    told.wait(false);
    const auto first = call.fail({errc::rendezvous}, "nobody hands out shared memory");
    REQUIRE(first);
    CHECK(first->kind() == errc::out_of_resources);
    CHECK(first->peer() == 0);
    CHECK(contains(*first, "cannot join: no descriptors left"));
    return all;
  });
  for (const auto& o : outcomes) CHECK(o.all.has_value());
}

TEST_CASE("the death of a process of this machine is noticed before the deadline") {
  // A claim of a process that came, registered and died.
  std::optional<roll_call_claim> dead;
  {
    tutti_test::forked_child child{[] {
      ::pause();
      return 0;
    }};
    dead = roll_call_claim::of_this_process(0, 3);
    dead->pid = child.pid();
    dead->start_time = tutti::os::process_start_time(child.pid()).value();
  }
  memory_store store;
  const auto mine = roll_call_claim::of_this_process(1, 3);
  std::optional<tutti::error> failure;
  const auto join = [&](roll_call_claim c) {
    try {
      static_cast<void>(roll_call<memory_store>{store, std::move(c), within(100s)}.call());
    } catch (const tutti::error& e) {
      failure = e;
    }
  };
  SUBCASE("the one that came first and collects") {
    store.set("terms", encode(*dead));
    store.set("ranks/0", encode(*dead));
    join(mine);
  }
  SUBCASE("one for whose company another collects") {
    store.set("ranks/0", encode(*dead));
    join(mine);
  }
  REQUIRE(failure.has_value());
  CHECK(failure->kind() == errc::peer_lost);
  CHECK(failure->peer() == 0);
  CHECK(contains(*failure, "rank 0 of 3"));
}

TEST_CASE("a stop ends the joining of every rank") {
  std::stop_source stop;
  memory_store store;
  std::vector<std::optional<tutti::error>> failures(2);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        auto how = within(100s);
        if (r == 1) how.stop = stop.get_token();
        try {
          static_cast<void>(roll_call<memory_store>{store, claim_of(r, 3, 100 + r), std::move(how)}.call());
        } catch (const tutti::error& e) {
          failures[static_cast<std::size_t>(r)] = e;
        }
      });
    static_cast<void>(store.get("ranks/1", tutti::after(20s)));
    stop.request_stop();
  }
  for (const auto& f : failures) {
    REQUIRE(f.has_value());
    CHECK(f->kind() == errc::aborted);
    CHECK(contains(*f, "rank 1 of 3"));
  }
}

TEST_CASE("foreign bytes in the store are an error, not a crash") {
  for (const char* key : {"terms", "ranks/0", "ranks/verdict"}) {
    CAPTURE(key);
    memory_store store;
    store.set(key, tutti::bytes_of("hello, I am something else"));
    if (std::string_view(key) == "ranks/verdict") store.set("terms", encode(claim_of(1, 2, 100)));
    try {
      static_cast<void>(roll_call<memory_store>{store, claim_of(0, 2, 101), within(20s)}.call());
      FAIL("foreign bytes were taken for a world");
    } catch (const tutti::error& e) {
      CHECK(e.kind() == errc::protocol);
    }
  }
}

TEST_CASE("a world that cannot be is refused before anything is written") {
  memory_store store;
  for (const int size : {0, -1, 65537})
    CHECK_THROWS_AS((roll_call<memory_store>{store, claim_of(0, size, 1), {}}), tutti::usage_error);
  CHECK_THROWS_AS((roll_call<memory_store>{store, claim_of(-1, 2, 1), {}}), tutti::usage_error);
}

TEST_CASE("ranks are listed as briefly as they can be") {
  using tutti::detail::rank_list;
  CHECK(rank_list(std::vector<int>{2}) == "2");
  CHECK(rank_list(std::vector<int>{2, 3}) == "2, 3");
  CHECK(rank_list(std::vector<int>{0, 2, 3, 4, 9}) == "0, 2-4, 9");
  std::vector<int> odd;
  for (int i = 1; i < 1000; i += 2) odd.push_back(i);
  CHECK(rank_list(odd).ends_with("31, ..."));
}
