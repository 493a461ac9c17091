#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/dtype.hpp>

namespace tutti::grad {

/// Memory for what a hook makes of a bucket while it travels: of as many buckets as are under way at a time, which
/// reducer_options::in_flight bounds. Taken as a bucket leaves, by one thread, and given back where its task ends,
/// maybe by another; what has been given back is used again. Outlives what has been taken of it. Move-only, and so is a
/// hook that has it.
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

  /// Some of it, with anything in it, until this ends. Move-only.
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

  /// Elements that peers map, from `world.allocate` where none that is free is large enough.
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

  /// While nothing is taken.
  void clear() noexcept { rooms_.clear(); }

 private:
  std::deque<room> rooms_;
};

}  // namespace tutti::grad
