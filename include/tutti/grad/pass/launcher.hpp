#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/in_flight.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>

namespace tutti::grad::detail {

/// The launch schedule of a pass: it decides when each bucket is launched, and keeps the operations in flight. In the
/// planned order, a bucket is launched after all buckets before it. In the order of readiness, each bucket has a group
/// of its own, in which nothing else is issued, so that ranks need not agree on the order. In both, the last bucket is
/// launched last, because its tail carries the step.
///
/// With a bound on the buckets in flight, a launch waits while the bound is reached. Out of order, one place is
/// reserved for the first bucket that has not been launched: the first one that has not ended can then always be
/// launched on every rank, so that no two ranks wait for each other. Operations that hooks issue later have one order,
/// too: tasks run one after the other in the plan's order, and on a shared communicator only after all launches that
/// have room have been made.
template <class Comm, class Operation>
class launcher {
  static constexpr bool splits = requires(Comm& c) {
    { c.split(0) } -> std::same_as<Comm>;
  };

 public:
  launcher(Comm& world, launch_order order, std::size_t in_flight)
      : world_(&world), order_(order), most_(in_flight == 0 ? std::size_t(-1) : in_flight) {
    if (order == launch_order::ready && !splits)
      throw usage_error("reducer: launch_order::ready needs a communicator whose split() gives others of its own type");
  }

  /// Prepares for the buckets of a plan. Collective if it makes groups.
  void arrange(const plan& p) {
    plan_ = &p;
    stages_.clear();
    stages_.resize(p.buckets.size());
    if constexpr (splits)
      for (; order_ == launch_order::ready && groups_.size() < stages_.size();) groups_.push_back(world_->split(0));
  }
  void begin() noexcept {
    for (std::size_t b = 0; b < stages_.size(); ++b) {
      stages_[b].missing = plan_->buckets[b].slots.size();
      stages_[b].is = state::waiting;
    }
    first_ = settled_ = 0;
    end_ = stages_.size() - plan_->delayed;
  }

  /// Returns the communicator of a bucket.
  [[nodiscard]] Comm& group(std::size_t b) noexcept { return groups_.empty() ? *world_ : groups_[b]; }

  /// Records that one more gradient of this bucket is complete. Returns true if all are: without a bound, next() finds
  /// no bucket before.
  bool complete(std::size_t b) noexcept { return --stages_[b].missing == 0; }
  [[nodiscard]] bool bounded() const noexcept { return most_ != std::size_t(-1); }

  /// Returns the bucket to launch now, or none, and lets a task run whose turn it is. Then call launched(), and next()
  /// again.
  [[nodiscard]] std::optional<std::size_t> next() {
    settle();
    return first_complete();
  }
  /// Keeps the operation of a bucket that has been launched.
  void launched(std::size_t b, Operation o) {
    stages_[b].operation.launch(std::move(o));
    stages_[b].is = state::in_flight;
    while (first_ < stages_.size() && stages_[first_].is != state::waiting) ++first_;
  }
  /// Lets next() return delayed buckets, too, and the last one.
  void release_delayed() noexcept { end_ = stages_.size(); }

  /// Returns a task that ends when the operation of a bucket has. Awaited once for each bucket, in the plan's order,
  /// after release_delayed() and as many launches as there is room for.
  [[nodiscard]] task<> end(std::size_t b) {
    stages_[b].is = state::ended;
    return stages_[b].operation.end();
  }
  /// Returns the operation of a bucket, which the caller ends.
  [[nodiscard]] Operation take(std::size_t b) {
    stages_[b].is = state::ended;
    return stages_[b].operation.take();
  }

  /// Drops all operations, after an abort.
  void drop() noexcept {
    for (stage& l : stages_) l.operation.drop(world_->engine());
  }

 private:
  enum class state : char { waiting, in_flight, ended };
  struct stage {
    std::size_t missing = 0;  // gradients that are not complete yet
    state is = state::waiting;
    in_flight_bucket<Operation> operation;
  };

  // Invariants of first_complete() and settle(): settled_ <= first_; all buckets before first_ have been launched; all
  // before settled_ have ended; at most most_ are in flight. Only the task of settled_ has begun and not ended, so that
  // tasks run in the plan's order. The last place in flight is reserved for first_: whichever buckets hold the others,
  // the one that all ranks need next can be launched. In the planned order, no rank runs a task before the window from
  // settled_ to first_ is full, or nothing is left to launch, even if a gradient is ready here and not there: launches
  // and the operations of tasks then have the same order on all ranks, which a shared communicator needs. Groups of
  // their own do not need that, and a task runs as soon as it is its turn. Without a bound, tasks run in finish(), and
  // settled_ stays 0.

  [[nodiscard]] std::optional<std::size_t> first_complete() const noexcept {
    if (first_ == end_) return {};
    const std::size_t room = most_ - (bounded() ? in_flight() : 0);
    if (room == 0) return {};
    if (stages_[first_].missing == 0) return first_;
    if (order_ == launch_order::planned || room == 1) return {};
    for (std::size_t b = first_ + 1; b < end_ && b + 1 < stages_.size(); ++b)
      if (stages_[b].missing == 0 && stages_[b].is == state::waiting) return b;
    return {};
  }
  [[nodiscard]] std::size_t in_flight() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(stages_.begin() + static_cast<std::ptrdiff_t>(settled_), stages_.end(),
                      [](const stage& l) { return l.is == state::in_flight && !l.operation.ended(); }));
  }
  /// Advances settled_ over buckets that have ended, and lets the next task run. Does nothing without a bound.
  void settle() {
    for (; bounded() && settled_ < stages_.size() && stages_[settled_].is != state::waiting; ++settled_) {
      stage& l = stages_[settled_];
      if (l.is == state::ended) continue;
      if (order_ == launch_order::ready || first_ - settled_ == most_ || first_ == stages_.size())
        l.operation.run(world_->engine());
      if (!l.operation.ended()) return;
    }
  }

  Comm* world_;
  launch_order order_;
  std::size_t most_;  // in flight at a time
  const plan* plan_ = nullptr;
  std::vector<stage> stages_;  // by bucket
  std::vector<Comm> groups_;
  std::size_t first_ = 0;    // the first bucket not launched; later ones may be, out of order
  std::size_t settled_ = 0;  // the first not known to have ended; its task may run
  std::size_t end_ = 0;      // later buckets wait for finish(): the delayed ones, then none
};

}  // namespace tutti::grad::detail
