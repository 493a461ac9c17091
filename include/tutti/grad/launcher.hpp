#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/flight.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>

namespace tutti::grad::detail {

/// Says when the buckets of a pass leave, and keeps their flights.
///
/// In the planned order a bucket leaves when those before it have left. In the order of readiness every bucket travels
/// in a group of its own, where nothing else is issued: ranks need not agree on which comes next, as they would where
/// collectives are told apart by their order. The last bucket leaves last in either, since it says how the pass went.
///
/// Under a bound a rank waits with a launch while so many are under way. Out of order it keeps one place for the first
/// bucket that has not left: the first one that has not ended anywhere then always has a place everywhere, so that no
/// two ranks wait for each other. What hooks issue later comes in one order, too: tasks run one after the other in
/// the plan's order, and on a shared communicator only when all launches that have room have been made.
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

  /// For the buckets of this plan. Collective where it makes groups.
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

  /// Where this bucket travels.
  [[nodiscard]] Comm& lane(std::size_t b) noexcept { return lanes_.empty() ? *world_ : lanes_[b]; }

  /// One more gradient of this bucket is complete.
  void complete(std::size_t b) noexcept { --legs_[b].missing; }
  [[nodiscard]] bool all_left() const noexcept { return first_ == legs_.size(); }
  [[nodiscard]] bool bounded() const noexcept { return most_ != std::size_t(-1); }

  /// Launches what may leave: `depart(bucket, communicator)` gives the flight.
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

  /// Launches all others as there is room, and ends when all have ended.
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

  /// Launches all others, where none waits for room.
  template <class Depart>
  void launch_rest(const Depart& depart) {
    end_ = legs_.size();
    advance(depart);
  }
  /// After launch_rest(): the flight of a bucket, which its caller ends.
  [[nodiscard]] auto take(std::size_t b) {
    legs_[b].is = place::arrived;
    return legs_[b].flight.take();
  }

  /// After an abort.
  void drop() noexcept {
    for (leg& l : legs_) l.flight.drop(world_->engine());
  }

 private:
  enum class place : char { here, under_way, arrived };
  struct leg {
    std::size_t missing = 0;  // gradients that it waits for
    place is = place::here;
    bucket_flight<Flight> flight;
  };
  static constexpr std::size_t none = std::size_t(-1);

  // What next() and settle() keep true: settled_ <= first_, all before first_ have left, all before settled_ have
  // ended, and no more than most_ are under way. Of all tasks only that of settled_ has begun and not ended, so that
  // tasks follow each other in the plan's order. The last place under way is for first_ alone: whoever holds the
  // others, what all ranks need next can leave. In the planned order no rank lets a task run before the window from
  // settled_ to first_ is full, or nothing is left to launch, though a gradient may be ready here and not there: so
  // launches, and what tasks issue, mix in one way on all ranks, which a shared communicator needs. In groups of their
  // own they need not, and a task runs as soon as it is its turn. Without a bound tasks run in finish(), and settled_
  // stays 0.

  /// The bucket that leaves now, if any.
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
                      [](const leg& l) { return l.is == place::under_way && !l.flight.ended(); }));
  }
  /// Under a bound, sees what has ended, and lets the next task run.
  void settle() {
    for (; bounded() && settled_ < legs_.size() && legs_[settled_].is != place::here; ++settled_) {
      leg& l = legs_[settled_];
      if (l.is == place::arrived) continue;
      if (order_ == launch_order::ready || first_ - settled_ == most_ || all_left()) l.flight.run(world_->engine());
      if (!l.flight.ended()) return;
    }
  }

  Comm* world_;
  launch_order order_;
  std::size_t most_;  // under way at a time
  const plan* plan_ = nullptr;
  std::vector<leg> legs_;  // by bucket
  std::vector<Comm> lanes_;
  std::size_t first_ = 0;    // the first bucket that has not left; out of order some behind it have
  std::size_t settled_ = 0;  // the first that is not known to have ended: the one whose task may run
  std::size_t end_ = 0;      // buckets from here on wait for finish(): first those that are delayed, then none
};

}  // namespace tutti::grad::detail
