#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <tutti/async/progress_thread.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/threads.hpp>

#include <algo/links.hpp>

namespace {

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

template <class Link>
tutti::routine refused(Link link) {
  co_await link.refuse({tutti::errc::out_of_resources});
}

// The routine is queued for the next poll, which nobody but the parked thread makes.
TEST_CASE("driver: what ends while an operation is started wakes whoever is parked") {
  const auto hub = std::make_shared<tutti::threads_hub>(1);
  links::rank<watched_transport> me{hub, 0};
  const tutti::progress_thread driving{me.engine()};
  while (me.link().parks.load() == 0) std::this_thread::yield();
  auto failing = me.start([](auto link) { return refused(link); });
  CHECK(me.link().wakes.load() == 1);
  CHECK_THROWS_AS(failing.wait(), tutti::error);
}

}  // namespace
