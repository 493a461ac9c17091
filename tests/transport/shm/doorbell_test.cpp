#include <doctest/doctest.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <tutti/transport/shm/doorbell.hpp>
#include <utility>
#include <vector>

#include "support/forbidden_call.hpp"
#include "transport/drive.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::shm_control_block;
using tutti::detail::doorbell;
using tutti::detail::fences;

struct alignas(4096) page {
  std::byte bytes[4096]{};
};

struct two_ranks {
  fences a_fences = fences::by_ringer, b_fences = a_fences;
  std::vector<page> memory{(shm_control_block::bytes(2) + sizeof(page) - 1) / sizeof(page)};
  shm_control_block area{reinterpret_cast<std::byte*>(memory.data()), 2};
  doorbell a{area, 0, a_fences}, b{area, 1, b_fences};
};

}  // namespace

TEST_CASE("ringing a rank that is awake touches nothing") {
  two_ranks w;
  w.a.ring(1);
  w.a.ring_all();
  CHECK(w.area.block(1).bell == 0);
  CHECK(w.area.block(0).bell == 0);
}

TEST_CASE("a ring between prepare and sleep ends the sleep at once") {
  two_ranks w;
  w.b.prepare(shm_control_block::sleep::on_futex);
  w.a.ring(1);
  w.b.sleep(1h);  // a lost ring hangs here
  w.b.finish();
  CHECK(w.area.block(1).sleeping == shm_control_block::sleep::awake);
}

TEST_CASE("ring_all wakes everybody but the caller") {
  two_ranks w;
  w.a.prepare(shm_control_block::sleep::on_futex);
  w.b.prepare(shm_control_block::sleep::on_futex);
  w.a.ring_all();
  CHECK(w.area.block(0).bell == 0);
  w.b.sleep(1h);
}

TEST_CASE("a sleeper wakes itself from another thread") {
  two_ranks w;
  w.a.prepare(shm_control_block::sleep::on_futex);
  std::jthread other{[&] { w.a.wake_self(); }};
  w.a.sleep(1h);
}

TEST_CASE("a sleep ends by itself when its time is over") {
  two_ranks w;
  w.a.prepare(shm_control_block::sleep::on_futex);
  w.a.sleep(1ms);
  w.a.finish();
}

TEST_CASE("whoever sleeps on a descriptor is woken through it") {
  two_ranks w;
  std::vector<tutti::os::event_fd> descriptors(2);
  tutti::os::event_fd mine{tutti::os::fd{::dup(descriptors[1].native())}};
  w.a.wake_by(std::move(descriptors));
  w.b.prepare(shm_control_block::sleep::on_descriptor);
  CHECK_FALSE(mine.drain());
  w.a.ring(1);
  CHECK(mine.drain());
  CHECK(w.area.block(1).bell == 0);
  w.b.finish();
  w.a.ring(1);
  CHECK_FALSE(mine.drain());
}

TEST_CASE("a rank without the sleeper's descriptor does no harm") {
  two_ranks w;
  w.b.prepare(shm_control_block::sleep::on_descriptor);
  w.a.ring(1);
}

TEST_CASE("a sleeper that may not make the fences of others any more leaves them to who rings") {
  two_ranks w{fences::by_sleeper};
  const bool able = w.area.block(1).fences == 1;
  bool forbidden = false;
  std::jthread sandboxed{[&] {
    forbidden = tutti_test::forbid(SYS_membarrier);
    w.b.prepare(shm_control_block::sleep::on_futex);
    w.b.finish();
  }};
  sandboxed.join();
  if (!able || !forbidden) {
    MESSAGE("left out: this system has no membarrier, or no filters for system calls");
    return;
  }
  CHECK(w.area.block(1).fences == 0);
  CHECK(w.area.block(0).fences == 1);
  w.b.prepare(shm_control_block::sleep::on_futex);
  w.a.ring(1);
  w.b.sleep(1h);
}

TEST_CASE("two threads that only sleep and ring never miss each other") {
  using enum tutti::detail::fences;
  two_ranks both_by_ringer{by_ringer, by_ringer}, both_by_sleeper{by_sleeper, by_sleeper}, mixed{by_sleeper, by_ringer};
  auto* chosen = &both_by_ringer;
  SUBCASE("that make the fence when they ring") {}
  SUBCASE("that make the fences of others when they sleep") { chosen = &both_by_sleeper; }
  SUBCASE("one of each kind") { chosen = &mixed; }
  two_ranks& w = *chosen;
  std::atomic<int> turn{0};
  constexpr int rounds = 2000;
  const auto play = [&](doorbell& bell, int me) {
    for (int i = 0; i < rounds; ++i) {
      while (turn.load(std::memory_order_acquire) != me) {
        bell.prepare(shm_control_block::sleep::on_futex);
        if (turn.load(std::memory_order_acquire) != me) bell.sleep(1h);
        bell.finish();
      }
      turn.store(1 - me, std::memory_order_release);  // ring() orders it before its look
      bell.ring(1 - me);
    }
  };
  std::jthread other{[&] { play(w.b, 1); }};
  play(w.a, 0);
}
