#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/threads.hpp>

#include <algo/lanes.hpp>

namespace {

using driver = tutti::driver<tutti::threads_transport>;

std::shared_ptr<driver> one_of(int size) {
  return std::make_shared<driver>(
      std::make_shared<tutti::engine>(),
      std::make_unique<tutti::threads_transport>(std::make_shared<tutti::threads_hub>(size), 0));
}

TEST_CASE("driver: memory is zeroed, aligned to pages, and may be nothing") {
  const auto d = one_of(1);
  auto guard = d->home().lock();
  for (const std::size_t bytes : {0U, 1U, 5000U}) {
    std::byte* p = d->allocate(bytes);
    CHECK(p != nullptr);
    for (std::size_t i = 0; i < bytes; ++i) CHECK(p[i] == std::byte{});
    d->deallocate(p);
  }
}

TEST_CASE("driver: one split at a time, from the highest context so far") {
  const auto d = one_of(1);
  d->use_context(5);
  d->use_context(3);
  {
    const tutti::detail::split_in_progress first{*d};
    CHECK(first.contexts() == 5);
    CHECK_THROWS_AS(tutti::detail::split_in_progress{*d}, tutti::usage_error);
  }
  const tutti::detail::split_in_progress again{*d};
  CHECK(again.contexts() == 5);
}

TEST_CASE("driver: an operation past its deadline ends all that are in flight, and says whom it waited for") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<int> v(10), w(10);
  auto waits_for_two = world.recv(v, 2, 0, {.timeout = std::chrono::milliseconds(20)});
  auto patient = world.recv(w, 0, 0, {.timeout = std::chrono::hours(1)});
  const tutti::status first = tutti::nothrow(std::move(waits_for_two)).wait();
  CHECK(first.code == tutti::errc::timed_out);
  CHECK(first.peer == 2);
  const tutti::status second = tutti::nothrow(std::move(patient)).wait();
  CHECK(second.code == tutti::errc::timed_out);
  CHECK(second.peer == 2);
}

TEST_CASE("driver: the last of its owners says goodbye, so that peers stop waiting") {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  auto stays = tutti::join(hub, 0);
  std::vector<int> v(3);
  auto receiving = stays.recv(v, 1);
  tutti::join(hub, 1);
  CHECK(tutti::nothrow(std::move(receiving)).wait().code == tutti::errc::peer_left);
}

/// Tells when its rank is parked, and how often it was woken; sleeps longer than the engine asks for.
class watched_transport : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  void park(tutti::duration) noexcept {
    parks.fetch_add(1);
    threads_transport::park(std::chrono::seconds(10));
  }
  void unpark() noexcept {
    wakes.fetch_add(1);
    threads_transport::unpark();
  }
  std::atomic<int> parks{0}, wakes{0};
};

template <class Lane>
tutti::routine refused(Lane lane) {
  co_await lane.refuse({tutti::errc::out_of_resources});
}

// The routine is queued for the next poll, which nobody but the parked thread makes.
TEST_CASE("driver: what ends while an operation is started wakes whoever is parked") {
  const auto hub = std::make_shared<tutti::threads_hub>(1);
  lanes::rank<watched_transport> me{hub, 0};
  const tutti::progress_thread driving{me.engine()};
  while (me.link().parks.load() == 0) std::this_thread::yield();
  auto failing = me.start([](auto lane) { return refused(lane); });
  CHECK(me.link().wakes.load() == 1);
  CHECK_THROWS_AS(failing.wait(), tutti::error);
}

}  // namespace
