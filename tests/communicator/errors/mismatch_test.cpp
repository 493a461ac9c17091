#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>

#include <communicator/ranks.hpp>
#include <support/grid.hpp>

// Ranks that map each other's memory and call different things. All of it is noticed before anything is copied.

namespace {

using ranks::collected;
using ranks::contains;
using ranks::expect;
using ranks::world;
using tutti::algorithm;
using tutti::errc;

using action = std::function<void(world&)>;

template <class T = float, class Op = decltype(tutti::sum)>
action all_reduce(std::size_t count, Op with = {}) {
  return [=](world& w) {
    std::vector<T> v(count, T{1});
    w.all_reduce(v, with).wait();
  };
}
action broadcast(std::size_t count, int root) {
  return [=](world& w) {
    std::vector<float> v(count);
    w.broadcast(v, root).wait();
  };
}
action all_gather(std::size_t count) {
  return [=](world& w) {
    std::vector<float> in(count), out(count * static_cast<std::size_t>(w.size()));
    w.all_gather(in, out).wait();
  };
}
action reduce_scatter(std::size_t count) {
  return [=](world& w) {
    std::vector<float> out(count), in(count * static_cast<std::size_t>(w.size()));
    w.reduce_scatter(in, out).wait();
  };
}
action string(int root) {
  return [=](world& w) {
    std::string s = "so many letters";
    w.broadcast(s, root).wait();
  };
}
action scan(std::size_t count, algorithm via = algorithm::automatic) {
  return [=](world& w) {
    std::vector<float> v(count);
    w.scan(v, v, tutti::sum, {.via = via}).wait();
  };
}
action reduce(std::size_t count, int root) {
  return [=](world& w) {
    std::vector<float> v(count);
    w.reduce(v, v, root).wait();
  };
}
action gather(std::size_t count, int root) {
  return [=](world& w) {
    std::vector<float> in(count), out(count * static_cast<std::size_t>(w.size()));
    w.gather(in, out, root).wait();
  };
}
action scatter(std::size_t count, int root) {
  return [=](world& w) {
    std::vector<float> out(count), in(count * static_cast<std::size_t>(w.size()));
    w.scatter(in, out, root).wait();
  };
}
action all_to_all(std::size_t count) {
  return [=](world& w) {
    std::vector<float> v(count * static_cast<std::size_t>(w.size()));
    w.all_to_all(v, v).wait();
  };
}
action barrier() {
  return [](world& w) { w.barrier().wait(); };
}

struct outcome {
  errc code = errc::ok;
  int peer = -1;
  std::string text;
};

/// The last rank calls `other`, the others `usual`, all of them after a few calls that agree, and then a barrier.
std::vector<outcome> differ(int size, const action& usual, const action& other) {
  collected<outcome> ends(size);
  std::barrier agreed{size};  // none of the world's: nobody hears of the failure in a call that agrees
  tutti::run_threads(size, [&](world& w) {
    w.timeout(std::chrono::seconds(20));
    try {
      for (int i = 0; i < 3; ++i) {
        barrier()(w);
        broadcast(10, i % w.size())(w);
        all_reduce(1000)(w);
      }
      agreed.arrive_and_wait();
      (w.rank() == w.size() - 1 ? other : usual)(w);
      barrier()(w);
    } catch (const tutti::error& e) {
      ends[w.rank()] = {e.kind(), e.peer(), e.what()};
    }
  });
  std::vector<outcome> all;
  for (int r = 0; r < size; ++r) all.push_back(ends[r]);
  return all;
}

void check_differ(const action& usual, const action& other) {
  for (const int size : {2, 3, 5}) {
    const auto ends = differ(size, usual, other);
    for (int r = 0; r < size; ++r) {
      const outcome& e = ends[static_cast<std::size_t>(r)];
      CAPTURE(size);
      CAPTURE(r);
      CHECK_MESSAGE(e.code == errc::mismatch, e.text);
      CHECK_MESSAGE(contains(e.text, " called"), e.text);
      CHECK_MESSAGE(!contains(e.text, "called another collective"), e.text);  // said where nothing is known
    }
  }
}

TEST_CASE("mismatch: ranks that call different things in mapped memory are told") {
  SUBCASE("sizes of one round") { check_differ(all_reduce(100), all_reduce(200)); }
  SUBCASE("a small and a large size") { check_differ(all_reduce(100), all_reduce(40000)); }
  SUBCASE("a large and a small size") { check_differ(all_reduce(40000), all_reduce(100)); }
  SUBCASE("buffers that are mapped, one element apart") { check_differ(all_reduce(20000), all_reduce(20001)); }
  SUBCASE("nothing and something") { check_differ(all_reduce(0), all_reduce(1)); }
  SUBCASE("types of one size") { check_differ(all_reduce(100), all_reduce<std::int32_t>(100)); }
  SUBCASE("large buffers of types of one size") { check_differ(all_reduce(20000), all_reduce<std::int32_t>(20000)); }
  SUBCASE("reductions") { check_differ(all_reduce(100), all_reduce(100, tutti::max)); }
  SUBCASE("divisors") { check_differ(all_reduce(100, tutti::mean_over(3)), all_reduce(100, tutti::mean_over(4))); }
  SUBCASE("divisors of large buffers") {
    check_differ(all_reduce(40000, tutti::mean_over(3)), all_reduce(40000, tutti::mean_over(4)));
  }
  SUBCASE("all_reduce and broadcast") { check_differ(all_reduce(100), broadcast(100, 0)); }
  SUBCASE("broadcast and all_reduce") { check_differ(broadcast(100, 0), all_reduce(100)); }
  // Of two ranks both take themselves for the root, and are done at once: the barrier behind it fails.
  SUBCASE("roots") { check_differ(broadcast(100, 0), broadcast(100, 1)); }
  SUBCASE("no root at all") { check_differ(broadcast(100, 1), broadcast(100, 0)); }
  SUBCASE("roots of large broadcasts") { check_differ(broadcast(300000, 0), broadcast(300000, 1)); }
  SUBCASE("sizes of a broadcast") { check_differ(broadcast(100, 0), broadcast(300000, 0)); }
  SUBCASE("barrier and all_reduce") { check_differ(barrier(), all_reduce(100)); }
  SUBCASE("all_reduce and barrier") { check_differ(all_reduce(40000), barrier()); }
  SUBCASE("all_gather") { check_differ(all_gather(100), all_gather(101)); }
  SUBCASE("reduce_scatter") { check_differ(reduce_scatter(100000), reduce_scatter(100001)); }
  SUBCASE("reduce_scatter and all_gather") { check_differ(reduce_scatter(100), all_gather(100)); }
  SUBCASE("sizes of a scan") { check_differ(scan(100), scan(101)); }
  SUBCASE("reduce and scan") { check_differ(reduce(100, 0), scan(100)); }
  SUBCASE("roots of a reduce") { check_differ(reduce(100, 0), reduce(100, 1)); }
  SUBCASE("sizes of a reduce, at the root") { check_differ(reduce(100, 1), reduce(101, 1)); }
  SUBCASE("a small and a large gather") { check_differ(gather(10, 0), gather(10000, 0)); }
  SUBCASE("gather and scatter") { check_differ(gather(10, 0), scatter(10, 0)); }
  SUBCASE("roots of a scatter") { check_differ(scatter(10, 0), scatter(10, 1)); }
  SUBCASE("sizes of an all_to_all") { check_differ(all_to_all(10), all_to_all(11)); }
  SUBCASE("all_to_all and all_gather") { check_differ(all_to_all(100), all_gather(100)); }
}

TEST_CASE("mismatch: a call that ended at once is known to whoever waits for another one") {
  SUBCASE("a number and a string") { check_differ(string(0), broadcast(1, 0)); }
  SUBCASE("a number of this rank and a string of it") { check_differ(broadcast(1, 0), string(0)); }
  SUBCASE("a scan by messages") { check_differ(scan(10), scan(10, algorithm::chain)); }
}

TEST_CASE("mismatch: the message says what the other rank called") {
  const std::string advice =
      "; all ranks must issue the same operations in the same order, and threads or coroutines that issue beside each "
      "other need a split() each";
  const auto ends = differ(3, all_reduce(4096), broadcast(1024, 0));
  for (const std::size_t r : {0U, 1U}) {
    CAPTURE(ends[r].text);
    const std::string theirs = "broadcast #10 (1024 x float32, root 0)", other = r == 0 ? "rank 1" : "rank 0";
    CHECK(contains(ends[r].text, "all_reduce #10 (mismatch_test.cpp:"));
    const bool begun =
        contains(ends[r].text, ", 4096 x float32, sum) does not match what rank 2 called: " + theirs + advice);
    // Or it heard of it before its own call had begun.
    const bool told = contains(ends[r].text, ", 4096 x float32, sum) failed: rank 2 called " + theirs + " where " +
                                                 other + " called all_reduce #10 (4096 x float32, sum)" + advice);
    CHECK((begun || told));
  }
  CHECK(contains(ends[2].text, ", 1024 x float32, root 0) does not match what rank "));
  CHECK(contains(ends[2].text, " called: all_reduce #10 (4096 x float32, sum)" + advice));
  // Both take themselves for the root, and are done at once.
  const auto late = differ(2, broadcast(100, 0), broadcast(100, 1));
  CHECK(contains(late[0].text, "barrier #11 ("));
  CHECK(contains(late[0].text,
                 "rank 1 called broadcast #10 (100 x float32, root 1) where this rank called broadcast #10 "
                 "(100 x float32, root 0)"));
}

TEST_CASE("mismatch: in a first call nobody is told of a wrong rank") {
  const std::vector<std::pair<action, action>> pairs{{all_reduce(100), all_reduce(200)},
                                                     {all_reduce(100), broadcast(100, 1)},
                                                     {all_reduce(100), all_reduce<std::int32_t>(100)},
                                                     {barrier(), all_gather(9)}};
  for (const auto& pair : pairs)
    for (int odd = 0; odd < 3; ++odd)
      for (int round = 0; round < tutti_test::grid<int>({10}, {2}).front(); ++round) {
        collected<outcome> ends(3);
        tutti::run_threads(3, [&](world& w) {
          try {
            (w.rank() == odd ? pair.second : pair.first)(w);
            barrier()(w);
          } catch (const tutti::error& e) {
            ends[w.rank()] = {e.kind(), e.peer(), e.what()};
          }
        });
        for (const int r : {0, 1, 2}) {
          CAPTURE(r);
          CAPTURE(odd);
          CHECK_MESSAGE(ends[r].code == errc::mismatch, ends[r].text);
          const bool knows = ends[r].peer == odd || ends[r].peer == -1;  // the third may not have begun
          CHECK_MESSAGE(knows, ends[r].peer << ": " << ends[r].text);
          const std::string faulty = r == odd ? "this rank" : "rank " + std::to_string(odd);
          const bool named =
              r == odd ? contains(ends[r].text, " does not match what rank ") || contains(ends[r].text, "this rank")
                       : contains(ends[r].text, faulty);
          CHECK_MESSAGE(named, ends[r].text);
        }
      }
}

TEST_CASE("mismatch: messages of other calls are noticed, also of one length") {
  const auto via = [](auto call) {
    return [=](world& w) { call(w, tutti::call_options{.via = tutti::algorithm::ring}); };
  };
  const auto sums = [](auto zero, auto with) {
    return [=](world& w, tutti::call_options how) {
      std::vector<decltype(zero)> v(100);
      w.all_reduce(v, with, how).wait();
    };
  };
  const action floats = via(sums(0.0f, tutti::sum));
  const auto check = [&](const action& other, const std::string& name) {
    for (const int size : {2, 4}) {
      const auto ends = differ(size, floats, other);
      for (const auto& [code, peer, text] : ends) {
        CAPTURE(text);
        CHECK(code == errc::mismatch);
        if (size > 2) CHECK((peer == -1 || peer == size - 1));  // not all may have begun
        CHECK(contains(text, "float32, sum"));
        CHECK(contains(text, name));
        CHECK(contains(text, " called"));
        CHECK(!contains(text, "another rank"));
      }
    }
  };
  check(via(sums(std::int32_t{0}, tutti::sum)), "int32, sum");
  check(via(sums(0.0f, tutti::max)), "float32, max");
  check(
      [](world& w) {
        std::vector<float> v(1000000);
        w.broadcast(v, w.rank(), {.via = tutti::algorithm::tree}).wait();
      },
      "float32, root ");
}

TEST_CASE("mismatch: messages of means over other divisors are noticed") {
  const auto mean = [](double divisor) {
    return [=](world& w) {
      std::vector<float> v(100, 1);
      w.all_reduce(v, tutti::mean_over(divisor), {.via = tutti::algorithm::ring}).wait();
    };
  };
  for (const int size : {2, 4})
    for (const auto& [code, peer, text] : differ(size, mean(3), mean(4))) {
      CAPTURE(text);
      CHECK(code == errc::mismatch);
      CHECK(contains(text, "all_reduce #10 ("));
      CHECK(contains(text, "float32, mean_over"));
      CHECK(contains(text, " with another divisor"));
    }
}

TEST_CASE("mismatch: of what only two ranks send each other these two must agree") {
  const std::string advice = "; sender and receiver must agree on the count";
  const auto both = [](auto call) {
    collected<std::string> texts(3);
    tutti::run_threads(3, [&](world& w) {
      try {
        call(w);
        w.barrier().wait();
      } catch (const tutti::error& e) {
        texts[w.rank()] = e.what();
      }
    });
    return std::vector<std::string>{texts[0], texts[1], texts[2]};
  };
  std::vector<std::string> texts;
  std::vector<float> few(3), many(5);
  SUBCASE("send and recv") {
    texts = both([&](world& w) {
      if (w.rank() == 0) w.send(few, 1).wait();
      if (w.rank() == 1) w.recv(many, 0).wait();
    });
    CHECK(contains(texts[1], "sent 12 bytes of a message to this rank, which waits for 20" + advice));
  }
  SUBCASE("send and recv_any") {
    texts = both([&](world& w) {
      if (w.rank() == 0) w.send(few, 1).wait();
      if (w.rank() == 1) w.recv_any(many).wait();
    });
  }
  SUBCASE("a block") {
    texts = both([](world& w) {
      const std::vector<std::size_t> twos(3, 2);
      std::vector<std::size_t> threes(3, 3);
      threes[static_cast<std::size_t>(w.rank())] = 2;
      std::vector<float> in(6), out(9);
      w.all_to_all_v(in, twos, out, threes).wait();
    });
  }
  for (const std::string& text : texts) CHECK_MESSAGE(text.ends_with(advice), text);
}

TEST_CASE("mismatch: nobody's other memory is touched") {
  collected<std::size_t> hurt(2);
  collected<errc> ends(2);
  tutti::run_threads(2, [&](world& w) {
    auto v = w.allocate<float>(w.rank() == 0 ? 32768 : 131072);
    auto unrelated = w.allocate<float>(98304);
    std::fill(v.begin(), v.end(), 1.0f);
    std::fill(unrelated.begin(), unrelated.end(), 7.0f);
    w.barrier().wait();
    ends[w.rank()] = nothrow(w.all_reduce(v.span(), tutti::sum)).wait().code;
    hurt[w.rank()] = unrelated.size() - static_cast<std::size_t>(std::count(unrelated.begin(), unrelated.end(), 7.0f)) +
                     v.size() - static_cast<std::size_t>(std::count(v.begin(), v.end(), 1.0f));
  });
  for (const int r : {0, 1}) {
    CHECK(ends[r] == errc::mismatch);
    CHECK(hurt[r] == 0);
  }
}

// Whoever needs nothing more of a broadcast goes on while others are still steps behind.
TEST_CASE("mismatch: there is no false alarm, whatever is in flight") {
  for (const int size : tutti_test::grid<int>({2, 3, 4, 7}, {4}))
    tutti::run_threads(size, [](world& w) {
      const std::vector<std::size_t> counts{0, 1, 100, 20000, 70000};
      const auto n = static_cast<std::size_t>(w.size());
      struct buffers {
        std::vector<float> reduced, given, in, all, mine;
      };
      for (std::size_t round = 0; round < 60; ++round) {
        std::vector<buffers> used(12);
        std::vector<tutti::op> running;
        for (std::size_t i = 0; i < used.size(); ++i) {
          const std::size_t count = counts[(round + i * i) % counts.size()];
          used[i] = {std::vector<float>(count, 1), std::vector<float>(count), std::vector<float>(count, 2),
                     std::vector<float>(count * n, 3), std::vector<float>(count)};
          buffers& b = used[i];
          const int root = static_cast<int>((round + i) % n);
          switch ((round * 7 + i * 5 + i / 3) % 6) {
            case 0:
              running.push_back(w.all_reduce(b.reduced, tutti::sum));
              break;
            case 1:
              running.push_back(w.barrier());
              break;
            case 2:
              running.push_back(w.all_gather(b.in, b.all));
              break;
            case 3:
              running.push_back(w.reduce_scatter(b.all, b.mine));
              break;
            default:
              running.push_back(w.broadcast(b.given, root));
              running.push_back(w.broadcast(b.in, (root + 1) % w.size()));
          }
        }
        for (auto& r : running) r.wait();
        for (const buffers& b : used)
          expect(b.reduced.empty() || b.reduced.front() == 1 || b.reduced.back() == static_cast<float>(n), "a sum");
      }
    });
}

}  // namespace
