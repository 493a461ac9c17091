#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/flight.hpp>
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
template <class Comm, class Flight>
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
    legs_.clear();
    legs_.resize(p.buckets.size());
    if constexpr (splits)
      for (; order_ == launch_order::ready && lanes_.size() < legs_.size();) lanes_.push_back(world_->split(0));
  }
  void begin() noexcept {
    for (std::size_t b = 0; b < legs_.size(); ++b) {
      legs_[b].missing = plan_->buckets[b].slots.size();
      legs_[b].is = place::here;
    }
    first_ = settled_ = 0;
    end_ = legs_.size() - plan_->delayed;
  }

  /// Returns the communicator of a bucket.
  [[nodiscard]] Comm& lane(std::size_t b) noexcept { return lanes_.empty() ? *world_ : lanes_[b]; }

  /// Records that one more gradient of this bucket is complete.
  void complete(std::size_t b) noexcept { --legs_[b].missing; }
  [[nodiscard]] bool all_left() const noexcept { return first_ == legs_.size(); }
  [[nodiscard]] bool bounded() const noexcept { return most_ != std::size_t(-1); }

  /// Launches the buckets that may be launched; `depart(bucket, communicator)` returns the operation.
  template <class Depart>
  void advance(const Depart& depart) {
    for (;;) {
      settle();
      const std::size_t b = next();
      if (b == none) return;
      legs_[b].flight.launch(depart(b, lane(b)));
      legs_[b].is = place::under_way;
      while (first_ < legs_.size() && legs_[first_].is != place::here) ++first_;
    }
  }

  /// Launches all remaining buckets as there is room, and ends when all have ended.
  template <class Depart>
  task<> finish(Depart depart) {
    end_ = legs_.size();
    for (std::size_t b = 0; b < legs_.size(); ++b) {
      advance(depart);
      co_await legs_[b].flight.end();
      legs_[b].is = place::arrived;
      legs_[b].flight.clear();
    }
  }

  /// Launches all remaining buckets, if there is no bound.
  template <class Depart>
  void launch_rest(const Depart& depart) {
    end_ = legs_.size();
    advance(depart);
  }
  /// Returns the operation of a bucket, which the caller ends; after launch_rest().
  [[nodiscard]] auto take(std::size_t b) {
    legs_[b].is = place::arrived;
    return legs_[b].flight.take();
  }

  /// Drops all operations, after an abort.
  void drop() noexcept {
    for (stage& l : legs_) l.flight.drop(world_->engine());
  }

 private:
  enum class place : char { here, under_way, arrived };
  struct stage {
    std::size_t missing = 0;  // gradients that are not complete yet
    place is = place::here;
    bucket_flight<Flight> flight;
  };
  static constexpr std::size_t none = std::size_t(-1);

  // Invariants of next() and settle(): settled_ <= first_; all buckets before first_ have been launched; all before
  // settled_ have ended; at most most_ are in flight. Only the task of settled_ has begun and not ended, so
  // that tasks run in the plan's order. The last place in flight is reserved for first_: whichever buckets hold the
  // others, the one that all ranks need next can be launched. In the planned order, no rank runs a task before the
  // window from settled_ to first_ is full, or nothing is left to launch, even if a gradient is ready here and not
  // there: launches and the operations of tasks then have the same order on all ranks, which a shared communicator
  // needs. Groups of their own do not need that, and a task runs as soon as it is its turn. Without a bound, tasks run
  // in finish(), and settled_ stays 0.

  /// Returns the bucket to launch now, or none.
  [[nodiscard]] std::size_t next() const noexcept {
    if (first_ == end_) return none;
    const std::size_t room = most_ - (bounded() ? under_way() : 0);
    if (room == 0) return none;
    if (legs_[first_].missing == 0) return first_;
    if (order_ == launch_order::planned || room == 1) return none;
    for (std::size_t b = first_ + 1; b < end_ && b + 1 < legs_.size(); ++b)
      if (legs_[b].missing == 0 && legs_[b].is == place::here) return b;
    return none;
  }
  [[nodiscard]] std::size_t under_way() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(legs_.begin() + static_cast<std::ptrdiff_t>(settled_), legs_.end(),
                      [](const stage& l) { return l.is == place::under_way && !l.flight.ended(); }));
  }
  /// Advances settled_ over buckets that have ended, and lets the next task run. Does nothing without a bound.
  void settle() {
    for (; bounded() && settled_ < legs_.size() && legs_[settled_].is != place::here; ++settled_) {
      stage& l = legs_[settled_];
      if (l.is == place::arrived) continue;
      if (order_ == launch_order::ready || first_ - settled_ == most_ || all_left()) l.flight.run(world_->engine());
      if (!l.flight.ended()) return;
    }
  }

  Comm* world_;
  launch_order order_;
  std::size_t most_;  // in flight at a time
  const plan* plan_ = nullptr;
  std::vector<stage> legs_;  // by bucket
  std::vector<Comm> lanes_;
  std::size_t first_ = 0;    // the first bucket not launched; later ones may be, out of order
  std::size_t settled_ = 0;  // the first not known to have ended; its task may run
  std::size_t end_ = 0;      // later buckets wait for finish(): the delayed ones, then none
};

}  // namespace tutti::grad::detail
