#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/store/concept.hpp>
#include <tutti/store/text.hpp>

#include <support/on_threads.hpp>

namespace tutti_test {

/// What every store promises. A family is default-constructible, stands for one table, and has
///   alone(body)       calls body(store) in this thread
///   run(ranks, body)  calls body(rank, store) in as many threads, each with the store it would have as that rank
template <class Family>
void check_store_conformance() {
  using tutti::after;
  using tutti::bytes_of;
  using tutti::text_of;
  using namespace std::chrono_literals;
  const auto soon = [] { return after(60s); };

  SUBCASE("what is set is what one gets, byte for byte") {
    Family{}.alone([&](auto& s) {
      static_assert(tutti::store<std::remove_reference_t<decltype(s)>>);
      const std::string binary{"\0\xff\n key\0", 9};
      s.set(binary, bytes_of(binary));
      s.set("empty", {});
      s.set(std::string(1024, 'k'), std::vector<std::byte>(1 << 20, std::byte{7}));
      CHECK(text_of(s.get(binary, soon())) == binary);
      CHECK(s.get("empty", soon()).empty());
      CHECK(s.try_get("empty").has_value());
      const auto large = s.get(std::string(1024, 'k'), soon());
      CHECK(large.size() == 1 << 20);
      CHECK(std::count(large.begin(), large.end(), std::byte{7}) == 1 << 20);
      s.set(binary, bytes_of("other"));
      CHECK(text_of(s.get(binary, soon())) == "other");
      CHECK_FALSE(s.try_get("missing").has_value());
    });
  }
  SUBCASE("keys and values that are too large or empty keys are usage errors, and nothing happens") {
    Family{}.alone([&](auto& s) {
      const std::vector<std::byte> large((1 << 20) + 1);
      CHECK_THROWS_AS(s.set("", {}), tutti::usage_error);
      CHECK_THROWS_AS(s.set(std::string(1025, 'k'), {}), tutti::usage_error);
      CHECK_THROWS_AS(s.set("k", large), tutti::usage_error);
      CHECK_THROWS_AS(s.compare_set("k", {}, large), tutti::usage_error);
      CHECK_THROWS_AS(s.compare_set("k", large, {}), tutti::usage_error);
      CHECK_THROWS_AS((void)s.get("", soon()), tutti::usage_error);
      CHECK_THROWS_AS((void)s.try_get(""), tutti::usage_error);
      CHECK_THROWS_AS(s.add("", 1), tutti::usage_error);
      CHECK_THROWS_AS(s.erase(""), tutti::usage_error);
      CHECK_FALSE(s.try_get("k").has_value());
    });
  }
  SUBCASE("counters start at zero, are values of 8 bytes, and are kept apart from other values") {
    Family{}.alone([&](auto& s) {
      CHECK(s.add("n", 5) == 5);
      CHECK(s.add("n", -7) == -2);
      CHECK(s.add("n", 0) == -2);
      CHECK(s.get("n", soon()) == std::vector<std::byte>{std::byte{0xfe}, std::byte{0xff}, std::byte{0xff},
                                                         std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                                         std::byte{0xff}, std::byte{0xff}});
      CHECK(s.add("big", INT64_MAX) == INT64_MAX);
      CHECK(s.add("big", 1) == INT64_MIN);
      s.set("text", bytes_of("seven.."));
      CHECK_THROWS_AS(s.add("text", 1), tutti::usage_error);
      CHECK(text_of(s.get("text", soon())) == "seven..");
    });
  }
  SUBCASE("compare_set sets only what it expects, and tells what is there") {
    Family{}.alone([&](auto& s) {
      CHECK(s.compare_set("k", bytes_of("old"), bytes_of("new")).empty());
      CHECK_FALSE(s.try_get("k").has_value());
      CHECK(text_of(s.compare_set("k", {}, bytes_of("a"))) == "a");
      CHECK(text_of(s.compare_set("k", {}, bytes_of("b"))) == "a");
      CHECK(text_of(s.compare_set("k", bytes_of("x"), bytes_of("b"))) == "a");
      CHECK(text_of(s.compare_set("k", bytes_of("a"), bytes_of("b"))) == "b");
      CHECK(text_of(s.get("k", soon())) == "b");
    });
  }
  SUBCASE("erase says whether there was something") {
    Family{}.alone([&](auto& s) {
      CHECK_FALSE(s.erase("k"));
      s.set("k", bytes_of("v"));
      CHECK(s.erase("k"));
      CHECK_FALSE(s.try_get("k").has_value());
      CHECK_FALSE(s.erase("k"));
      CHECK(s.add("k", 1) == 1);
    });
  }
  SUBCASE("get gives up at its deadline, names the key, and the store goes on") {
    Family{}.alone([&](auto& s) {
      for (int i = 0; i < 3; ++i) {
        try {
          (void)s.get("nobody sets this", after(5ms));
          FAIL_CHECK("no error");
        } catch (const tutti::error& e) {
          CHECK(e.kind() == tutti::errc::timed_out);
          CHECK(std::string{e.what()}.find("\"nobody sets this\"") != std::string::npos);
        }
      }
      s.set("nobody sets this", bytes_of("but now"));
      CHECK(text_of(s.get("nobody sets this", soon())) == "but now");
    });
  }
  SUBCASE("get waits for what another rank sets") {
    std::atomic<int> wrong{0};
    Family{}.run(4, [&](int rank, auto& s) {
      for (int round = 0; round < 20; ++round) {
        const std::string mine = std::to_string(round) + "/" + std::to_string(rank);
        const std::string next = std::to_string(round) + "/" + std::to_string((rank + 1) % 4);
        if (round % 4 == rank) std::this_thread::sleep_for(1ms);
        s.set(mine, bytes_of("value of " + mine));
        if (text_of(s.get(next, after(60s))) != "value of " + next) ++wrong;
      }
    });
    CHECK(wrong.load() == 0);
  }
  SUBCASE("several ranks that wait for one key all get it") {
    std::atomic<int> right{0};
    Family{}.run(4, [&](int rank, auto& s) {
      if (rank == 3) {
        std::this_thread::sleep_for(5ms);
        s.set("go", bytes_of("now"));
      }
      if (text_of(s.get("go", after(60s))) == "now") ++right;
    });
    CHECK(right.load() == 4);
  }
  SUBCASE("add is atomic: every sum is seen once") {
    std::mutex mutex;
    std::vector<std::int64_t> seen;
    Family{}.run(4, [&](int, auto& s) {
      std::vector<std::int64_t> mine;
      for (int i = 0; i < 50; ++i) mine.push_back(s.add("n", 1));
      s.add("done", 1);
      while (s.add("done", 0) < 4) std::this_thread::sleep_for(100us);
      const std::lock_guard lock{mutex};
      seen.insert(seen.end(), mine.begin(), mine.end());
    });
    std::sort(seen.begin(), seen.end());
    REQUIRE(seen.size() == 200);
    for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<std::int64_t>(i) + 1);
  }
  SUBCASE("compare_set has one winner, and all agree who it is") {
    std::atomic<int> winners{0}, disagree{0};
    Family{}.run(4, [&](int rank, auto& s) {
      for (int round = 0; round < 20; ++round) {
        const std::string key = "leader" + std::to_string(round), me = std::to_string(rank);
        const std::string won = text_of(s.compare_set(key, {}, bytes_of(me)));
        if (won == me) ++winners;
        if (text_of(s.get(key, after(60s))) != won) ++disagree;
      }
    });
    CHECK(winners.load() == 20);
    CHECK(disagree.load() == 0);
  }
  SUBCASE("barriers are built from add and get") {
    std::atomic<int> inside{0}, torn{0};
    Family{}.run(4, [&](int, auto& s) {
      for (int round = 0; round < 20; ++round) {
        ++inside;
        const std::string name = "barrier" + std::to_string(round);
        if (s.add(name + "/count", 1) == 4) s.set(name + "/open", bytes_of("1"));
        (void)s.get(name + "/open", after(60s));
        if (inside.load() < 4 * (round + 1)) ++torn;
      }
    });
    CHECK(torn.load() == 0);
  }
}

}  // namespace tutti_test
