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

/// Keeps an engine alive where it is owned by pointers of that kind, as that of a communicator is.
inline std::shared_ptr<engine> keep(engine& e) {
  auto owned = e.weak_from_this().lock();
  return owned ? owned : std::shared_ptr<engine>(std::shared_ptr<engine>{}, &e);
}

/// The engines that a sync_wait drives: its own, and those of other worlds whose operations its coroutines come to wait
/// for. Known to the thread that waits, or its fiber, as long as it does.
class drive_scope {
 public:
  explicit drive_scope(engine& own) noexcept : own_(own), outer_(std::exchange(drives_here.waits_in, this)) {}
  drive_scope(const drive_scope&) = delete;
  drive_scope& operator=(const drive_scope&) = delete;
  ~drive_scope() { drives_here.waits_in = outer_; }

  /// A coroutine on this thread is about to wait for an operation of `e`. True if a sync_wait drives that from now on.
  [[nodiscard]] static bool covers(engine& e) noexcept {
    drive_scope* const inner = drives_here.waits_in;
    return inner && ((&inner->own_ == &e && !inner->outer_) || inner->take_on(e));
  }

  /// Drives until `done()`.
  template <class Done>
  void run_until(Done done) noexcept {
    own_.run_until([&] { return done() || !others_.empty(); });
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

  // A coroutine that waits in an inner sync_wait may go on in an outer one.
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
    for (std::size_t i = 0; i < others_.size(); ++i) {  // coroutines that resume may add to them
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
