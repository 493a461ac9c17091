#include <doctest/doctest.h>

#include <atomic>
#include <set>
#include <thread>
#include <type_traits>
#include <vector>

#include <tutti/async/op_pool.hpp>

namespace {

using tutti::op_pool;
using tutti::op_state;
static_assert(!std::is_copy_constructible_v<op_pool> && !std::is_move_constructible_v<op_pool>);

TEST_CASE("op_pool: slots are in flight when they are handed out, distinct, and used again") {
  op_pool pool;
  CHECK(pool.capacity() == 0);
  std::set<op_state*> first;
  for (int i = 0; i < 100; ++i) {
    op_state& s = pool.acquire();
    CHECK_FALSE(s.done());
    CHECK(s.result.ok());
    s.result = {tutti::errc::aborted};
    s.word = op_state::finished;
    first.insert(&s);
  }
  CHECK(first.size() == 100);
  const std::size_t grown = pool.capacity();
  CHECK(grown >= 100);
  for (int round = 0; round < 5; ++round) {
    for (op_state* s : first) pool.release(*s);
    std::set<op_state*> again;
    for (int i = 0; i < 100; ++i) {
      op_state& s = pool.acquire();
      CHECK_FALSE(s.done());
      CHECK(s.result.ok());
      again.insert(&s);
    }
    CHECK(again.size() == 100);
    first = again;
  }
  CHECK(pool.capacity() == grown);
}

TEST_CASE("op_pool: what has been reserved is there, and was not handed out") {
  op_pool pool;
  pool.reserve();
  const std::size_t grown = pool.capacity();
  CHECK(grown > 0);
  std::set<op_state*> out;
  for (std::size_t i = 0; i < grown; ++i) {
    pool.reserve();
    out.insert(&pool.acquire());
  }
  CHECK(out.size() == grown);
  CHECK(pool.capacity() == grown);
  pool.release(**out.begin());
  pool.reserve();  // takes back what came home
  CHECK(&pool.acquire() == *out.begin());
  CHECK(pool.capacity() == grown);
}

TEST_CASE("op_pool: a closed pool tells which slot comes home last") {
  op_pool empty;
  CHECK(empty.close());
  op_pool pool;
  op_state& a = pool.acquire();
  op_state& b = pool.acquire();
  op_state& c = pool.acquire();
  CHECK_FALSE(pool.release(b));  // one of many: the pool is open
  CHECK_FALSE(pool.close());
  CHECK_FALSE(pool.release(a));
  CHECK(pool.release(c));
}

TEST_CASE("op_pool: threads that give slots back while it is closed agree on the last") {
  for (int round = 0; round < 200; ++round) {
    op_pool pool;
    std::vector<op_state*> out;
    for (int i = 0; i < 6; ++i) out.push_back(&pool.acquire());
    std::atomic<int> last{0};
    {
      std::vector<std::jthread> workers;
      for (const std::size_t first : {0u, 3u})
        workers.emplace_back([&, first] {
          for (std::size_t i = first; i < first + 3; ++i) last += pool.release(*out[i]);
        });
      last += pool.close();
    }
    CHECK(last.load() == 1);
  }
}

TEST_CASE("op_pool: several threads give slots back while one takes them") {
  op_pool pool;
  constexpr int threads = 3, rounds = 4000;
  std::vector<std::atomic<op_state*>> hands(threads);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&, t] {
        auto& hand = hands[static_cast<std::size_t>(t)];
        while (true) {
          const bool last = stop.load();
          if (op_state* s = hand.exchange(nullptr)) {
            if (s->info.sequence != static_cast<std::uint64_t>(t) + 1) wrong.fetch_add(1);  // somebody else has it
            s->info.sequence = 0;
            pool.release(*s);
          } else if (last) {
            return;
          } else {
            std::this_thread::yield();
          }
        }
      });
    for (int i = 0; i < rounds; ++i) {
      const auto t = static_cast<std::size_t>(i % threads);
      op_state& s = pool.acquire();
      s.info.sequence = t + 1;
      op_state* none = nullptr;
      while (!hands[t].compare_exchange_weak(none, &s)) {
        none = nullptr;
        std::this_thread::yield();
      }
    }
    stop = true;
  }
  CHECK(wrong.load() == 0);
  CHECK(pool.capacity() < 1000);
}

}  // namespace
