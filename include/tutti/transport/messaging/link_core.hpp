#pragma once
#include <cstdint>

#include <tutti/async/routine.hpp>
#include <tutti/async/scratch_pool.hpp>
#include <tutti/core/status.hpp>

namespace tutti {

/// Condition in shared memory that a routine waits for. Its transport polls it under the engine's lock.
class condition : public detail::pending {
 public:
  virtual bool holds() noexcept = 0;
  /// Returns the outcome of the wait; called once the condition holds. A failure ends the operation that waits.
  virtual status verdict() const noexcept { return {}; }
  virtual int waiting_for() const noexcept = 0;  ///< world rank whose store is missing

 protected:
  virtual ~condition() = default;

 private:
  friend class link_core;
};

/// Callback for the first failure of a link. It is called at once, in the thread that finds the failure.
struct failure_listener {
  void (*tell)(int rank, int descriptor, const status& why) noexcept = nullptr;
  int rank = -1, descriptor = -1;
};

/// State that every transport has, whatever moves its bytes: the queue of routines to resume, the conditions to poll,
/// and the first failure. All calls are made under the engine's lock.
class link_core {
 public:
  [[nodiscard]] status failure() const noexcept { return failure_; }
  /// Returns true if routines wait for a poll to go on or to end.
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty(); }
  /// Sets the callback for the first failure; called before the first operation.
  void tell_of_failure(const failure_listener& who) noexcept { listener_ = who; }
  /// Returns the pool from which operations take temporary memory.
  [[nodiscard]] scratch_pool& temporary() noexcept { return temporary_; }

  /// Records that the world has ended on this rank, and the number and the hash of the collectives that it has called
  /// there; 0 if they need not be compared. A link that can tell them to its peers hides this.
  void note_end(std::uint64_t, std::uint64_t) noexcept {}

  /// Returns an awaitable that ends the operation with `why`, at the next poll.
  auto refuse(status why) noexcept {
    struct refused : detail::pending {
      refused(detail::pending_list& ready, status s) noexcept { ready.complete(*this, s); }
    };
    return refused{ready_, why};
  }

  /// Moment from which a condition that does not hold yet is polled.
  enum class polling : char { now, later };
  /// Polls the condition until it holds or the link has failed; with `later`, it is polled after start_polling().
  void watch(condition& c, polling from = polling::now) noexcept {
    if (!failure_.ok())
      ready_.complete(c, failure_);
    else if (c.holds())
      ready_.complete(c, c.verdict());
    else
      (from == polling::now ? conditions_ : unpolled_).push_back(c);
  }
  /// Starts to poll a condition that was watched with `later`.
  void start_polling(condition& c) noexcept {
    if (!c.finished()) conditions_.push_back(c);
  }

 protected:
  bool poll_conditions() noexcept {
    bool moved = false;
    for (detail::pending* p = conditions_.front(); p;) {
      auto& c = static_cast<condition&>(*p);
      p = detail::pending_list::after(*p);
      if (!c.holds()) continue;
      ready_.complete(c, c.verdict());
      moved = true;
    }
    return moved;
  }

  /// Records the first failure and fails every condition. Returns false if there was a failure before.
  bool fail(status why) noexcept {
    if (!failure_.ok()) return false;
    failure_ = why;
    if (listener_.tell) listener_.tell(listener_.rank, listener_.descriptor, why);
    for (detail::pending_list* list : {&conditions_, &unpolled_})
      while (detail::pending* p = list->front()) ready_.complete(*p, why);
    return true;
  }

  /// Returns the world rank that a condition of this operation waits for; -1 if there is none.
  [[nodiscard]] int condition_waits_for(const detail::routine_promise* work) const noexcept {
    for (detail::pending* p = conditions_.front(); p; p = detail::pending_list::after(*p))
      if (p->root() == work) return static_cast<condition*>(p)->waiting_for();
    return -1;
  }

  /// Returns true if a condition waits for this peer.
  [[nodiscard]] bool condition_waits_on(int peer) const noexcept {
    for (detail::pending* p = conditions_.front(); p; p = detail::pending_list::after(*p))
      if (static_cast<condition*>(p)->waiting_for() == peer) return true;
    return false;
  }

  detail::pending_list ready_;

 private:
  detail::pending_list conditions_, unpolled_;
  scratch_pool temporary_;
  status failure_{};
  failure_listener listener_{};
};

}  // namespace tutti
