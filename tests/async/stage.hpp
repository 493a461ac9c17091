#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/op_pool.hpp>
#include <tutti/async/op_state.hpp>

namespace stage {

/// Whoever waits in it polls so often, however long the waits before were; less where somebody else takes its core.
inline void spin_for(tutti::engine& e, std::uint32_t polls) { e.wait_by({{polls, polls}, {20, 20}}); }

/// Owner of operations that end when the test says so.
class owner final : public tutti::op_owner {
 public:
  explicit owner(tutti::engine& e) noexcept : engine_(e) {}

  /// A slot whose operation is in flight.
  tutti::op_state& start() {
    auto guard = engine_.lock();
    tutti::op_state& s = pool_.acquire();
    s.owner = this;
    s.info = {"test", 1, tutti::dtype::i32, ++issued_, std::source_location::current(), {}, tutti::deadline::max()};
    return s;
  }
  void finish(tutti::op_state& s, tutti::status how = {}) {
    auto guard = engine_.lock();
    s.complete(how);
  }
  /// One that has ended already.
  tutti::op_state& finished(tutti::status how = {}) {
    tutti::op_state& s = start();
    finish(s, how);
    return s;
  }

  void release(tutti::op_state& s) noexcept override {
    pool_.release(s);
    released_.fetch_add(1);
  }
  void failed(tutti::status&) noexcept override { failures_.fetch_add(1); }
  tutti::error describe(const tutti::op_state& s) const override {
    return {s.result, "operation " + std::to_string(s.info.sequence) + " failed", {0, s.info.sequence, "test", {}}};
  }
  tutti::engine& engine() noexcept override { return engine_; }

  [[nodiscard]] std::uint64_t released() const noexcept { return released_.load(); }
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_.load(); }
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_; }

 private:
  tutti::engine& engine_;
  tutti::op_pool pool_;
  std::uint64_t issued_ = 0;
  std::atomic<std::uint64_t> released_{0}, failures_{0};
};

/// A source that ends operations after some polls, and sleeps until it is woken: a wake-up that is lost shows.
class source final : public tutti::progress_source {
 public:
  explicit source(tutti::engine& e) : engine_(e) { engine_.attach(*this); }
  source(const source&) = delete;
  source& operator=(const source&) = delete;
  ~source() { engine_.detach(*this); }

  /// The operation ends in the given poll from now on.
  void finish_later(tutti::op_state& s, std::uint64_t polls = 1, tutti::status how = {}) {
    {
      auto guard = engine_.lock();
      due_.push_back({&s, polls_ + polls, how});
    }
    engine_.notify();
  }

  bool poll() noexcept override {
    ++polls_;
    bool moved = false;
    for (std::size_t i = 0; i < due_.size();) {
      if (due_[i].at > polls_) {
        ++i;
        continue;
      }
      const entry e = due_[i];
      due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(i));
      e.op->complete(e.how);
      moved = true;
    }
    return moved;
  }
  void tick(tutti::deadline) noexcept override { ticks_.fetch_add(1); }
  void prepare_park() noexcept override {
    const std::lock_guard guard{mutex_};
    woken_ = false;
  }
  void park(tutti::duration) noexcept override {
    {
      auto guard = engine_.lock();
      if (!due_.empty()) return;  // as a peer whose bytes are on their way
    }
    std::unique_lock guard{mutex_};
    parks_.fetch_add(1);
    asleep_ = true;
    wake_.notify_all();
    if (!wake_.wait_for(guard, std::chrono::seconds(20), [this] { return woken_; })) overslept_.fetch_add(1);
    asleep_ = false;
  }
  void finish_park() noexcept override {}
  void unpark() noexcept override {
    {
      const std::lock_guard guard{mutex_};
      woken_ = true;
    }
    wake_.notify_all();
  }

  /// Returns when some thread sleeps in this source.
  void await_park() {
    std::unique_lock guard{mutex_};
    wake_.wait(guard, [this] { return asleep_; });
  }
  /// Until now; of all threads.
  [[nodiscard]] std::uint64_t polls() const {
    auto guard = engine_.lock();
    return polls_;
  }
  [[nodiscard]] std::uint64_t overslept() const noexcept { return overslept_.load(); }
  [[nodiscard]] std::uint64_t parks() const noexcept { return parks_.load(); }
  [[nodiscard]] std::uint64_t ticks() const noexcept { return ticks_.load(); }

 private:
  struct entry {
    tutti::op_state* op;
    std::uint64_t at;
    tutti::status how;
  };

  tutti::engine& engine_;
  std::vector<entry> due_;  // under the engine's lock
  std::uint64_t polls_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false, asleep_ = false;
  std::atomic<std::uint64_t> parks_{0}, overslept_{0}, ticks_{0};
};

/// A coroutine that runs at once and is destroyed, wherever it is suspended, by its owner.
class started {
 public:
  struct promise_type {
    std::exception_ptr failure;
    std::atomic<bool> ended{false};
    started get_return_object() noexcept { return started{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    auto final_suspend() const noexcept {
      struct tell {
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<promise_type> h) const noexcept { h.promise().ended = true; }
        void await_resume() const noexcept {}
      };
      return tell{};
    }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { failure = std::current_exception(); }
  };

  explicit started(std::coroutine_handle<promise_type> h) noexcept : handle_(h) {}
  started(started&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  started& operator=(started&&) = delete;
  ~started() { destroy(); }

  void destroy() {
    if (handle_) std::exchange(handle_, nullptr).destroy();
  }
  [[nodiscard]] bool done() const { return handle_.promise().ended.load(); }  // any thread
  void rethrow() const {
    if (handle_.promise().failure) std::rethrow_exception(handle_.promise().failure);
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

/// How far apart the addresses of the stack were at which a loop passed.
class stack_span {
 public:
  void pass() noexcept {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (low_ == 0 || here < low_) low_ = here;
    if (here > high_) high_ = here;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return high_ - low_; }

 private:
  std::uintptr_t low_ = 0, high_ = 0;
};

}  // namespace stage
