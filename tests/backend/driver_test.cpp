#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

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

}  // namespace
