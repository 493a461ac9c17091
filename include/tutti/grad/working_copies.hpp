#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/dtype.hpp>

namespace tutti::grad {

/// A pool of memory for the copies that a hook makes of buckets in flight, whose number reducer_options::in_flight
/// bounds. A copy is taken as a bucket is launched, by one thread, and given back when its task ends, maybe by another;
/// it is then reused. Outlives its copies. Move-only, and so is a hook that has it.
template <element T>
class working_copies {
  struct room {
    mapped_array<T> memory;
    std::atomic<bool> taken = false;
  };
  struct give_back {
    void operator()(room* r) const noexcept { r->taken.store(false); }
  };

 public:
  working_copies() = default;
  working_copies(working_copies&&) = default;
  working_copies& operator=(working_copies&&) = default;

  /// A piece of memory with undefined contents, given back at the end of this object. Move-only.
  class copy {
   public:
    copy() = default;
    [[nodiscard]] std::span<T> span() const noexcept {
      return room_ ? room_->memory.span().first(count_) : std::span<T>{};
    }

   private:
    friend working_copies;
    copy(room& r, std::size_t count) noexcept : room_(&r), count_(count) { r.taken.store(true); }
    std::unique_ptr<room, give_back> room_;
    std::size_t count_ = 0;
  };

  /// Takes `count` elements, which peers can map; allocated by `world.allocate` if no free piece is large enough.
  template <class Comm>
  [[nodiscard]] copy take(Comm& world, std::size_t count) {
    room* best = nullptr;
    for (room& r : rooms_)
      if (!r.taken.load() && (!best || tutti::detail::fits_better(r.memory.size(), best->memory.size(), count)))
        best = &r;
    if (!best) best = &rooms_.emplace_back();
    if (best->memory.size() < count) {
      best->memory = {};
      best->memory = world.template allocate<T>(count);
    }
    return copy{*best, count};
  }

  /// Frees all memory; only while nothing is taken.
  void clear() noexcept { rooms_.clear(); }

 private:
  std::deque<room> rooms_;
};

}  // namespace tutti::grad
