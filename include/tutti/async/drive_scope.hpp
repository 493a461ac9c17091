#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/driven_here.hpp>
#include <tutti/async/engine.hpp>

namespace tutti::detail {

/// Returns a pointer that keeps an engine alive if std::shared_ptr owns it, as that of a communicator; else a pointer
/// that owns nothing.
inline std::shared_ptr<engine> keep(engine& e) {
  auto owned = e.weak_from_this().lock();
  return owned ? owned : std::shared_ptr<engine>(std::shared_ptr<engine>{}, &e);
}

/// Set of engines that a sync_wait drives: its own, and those of other worlds for whose operations its coroutines wait.
/// The waiting thread, or fiber, finds it in drives_here as long as it exists.
class drive_scope {
 public:
  explicit drive_scope(engine& own) noexcept : own_(own), outer_(std::exchange(drives_here.waits_in, this)) {}
  drive_scope(const drive_scope&) = delete;
  drive_scope& operator=(const drive_scope&) = delete;
  ~drive_scope() { drives_here.waits_in = outer_; }

  /// Adds `e` to the set of the innermost sync_wait on this thread, for a coroutine that is about to wait for an
  /// operation of `e`. Returns false if there is no sync_wait, or no memory for the entry: then nothing here drives
  /// `e`.
  [[nodiscard]] static bool covers(engine& e) noexcept {
    drive_scope* const inner = drives_here.waits_in;
    return inner && ((&inner->own_ == &e && !inner->outer_) || inner->take_on(e));
  }

  /// Drives the own engine until `done()`, or all engines in turn once there are others: then a wait polls, yields, and
  /// in the end sleeps for 50 us at a time.
  template <class Done>
  void run_until(Done done) noexcept {
    own_.run_unchecked([&] { return done() || !others_.empty(); });
    for (std::size_t idle = 0; !done();) {
      if (poll_all())
        idle = 0;
      else if (++idle > most_yields)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      else if (idle > most_polls)
        std::this_thread::yield();
    }
  }

 private:
  static constexpr std::size_t most_polls = 100, most_yields = 1000;

  // The outer sync_waits drive it, too: a coroutine that waits in an inner one may continue in an outer one.
  bool take_on(engine& e) noexcept {
    try {
      for (drive_scope* s = this; s; s = s->outer_)
        if (&s->own_ != &e && std::ranges::none_of(s->others_, [&](const auto& o) { return o.get() == &e; }))
          s->others_.push_back(keep(e));
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  bool poll_all() noexcept {
    bool moved = own_.poll();
    for (std::size_t i = 0; i < others_.size(); ++i) {  // resumed coroutines may add engines
      const std::shared_ptr<engine> one = others_[i];
      moved |= one->poll();
    }
    return moved;
  }

  engine& own_;
  std::vector<std::shared_ptr<engine>> others_;
  drive_scope* outer_;
};

}  // namespace tutti::detail
