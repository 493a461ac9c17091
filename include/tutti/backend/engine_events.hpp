#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include <tutti/async/drive_scope.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/wait_policy.hpp>
#include <tutti/os/event_fd.hpp>

namespace tutti {

/// A descriptor for event loops: readable from the time that an operation of an engine has moved until poll(). A thread
/// drives the engine meanwhile, and resumes no coroutine: coroutines resume in poll(), on the thread of the loop.
/// Between the event and poll() no thread drives the engine.
///
///     engine_events events{world.engine()};
///     epoll_ctl(loop, EPOLL_CTL_ADD, events.native_handle(), …);  // EPOLLIN: events.poll()
///
/// The thread sleeps while nothing arrives. It is needed because shared memory has no descriptor, and TCP has many. The
/// object may outlive its world, whose engine it keeps. Throws std::system_error if there are no descriptors or threads
/// left.
class engine_events {
 public:
  explicit engine_events(engine& e, const wait_policy& idle = wait_policy::at_leisure())
      : engine_((e.check_place("engine_events"), e)), thread_([this, polls = idle.polls()] { watch(polls); }) {}
  engine_events(const engine_events&) = delete;
  engine_events& operator=(const engine_events&) = delete;
  ~engine_events() {
    if (engine_.inherited()) {  // fork() does not copy threads: see progress_thread
      [[maybe_unused]] static std::thread* kept = nullptr;
      kept = new std::thread(std::move(thread_));
      return;
    }
    stop_.store(true, std::memory_order_seq_cst);
    go_on();
    engine_.notify();
    thread_.join();
  }

  /// Returns the descriptor, which belongs to this object: do not read from it or close it.
  [[nodiscard]] int native_handle() const noexcept { return event_.native(); }

  /// Polls as engine::poll() does; after that the descriptor becomes readable for new events only.
  bool poll() noexcept {
    (void)event_.drain();
    go_on();
    return engine_.poll();
  }

 private:
  void go_on() noexcept {
    told_.store(false, std::memory_order_seq_cst);
    told_.notify_one();
  }
  void watch(std::uint32_t polls) noexcept {
    while (!stop_.load(std::memory_order_acquire)) {
      const std::uint32_t before = engine_.moves();
      engine_.watch_until([&] { return stop_.load(std::memory_order_acquire) || engine_.moves() != before; }, polls);
      told_.store(true, std::memory_order_seq_cst);
      event_.notify();
      if (!stop_.load(std::memory_order_seq_cst)) told_.wait(true, std::memory_order_acquire);
    }
  }

  engine& engine_;
  const std::shared_ptr<engine> kept_ = detail::keep(engine_);
  os::event_fd event_;
  // The destructor stores stop_, then told_; the thread stores told_, then loads stop_. In one order of all (seq_cst)
  // the thread sees stop_, or its wait sees told_ as the destructor left it.
  std::atomic<bool> stop_{false}, told_{false};
  std::thread thread_;
};

}  // namespace tutti
