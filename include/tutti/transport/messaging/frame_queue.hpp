#pragma once
#include <cstddef>
#include <vector>

#include <tutti/transport/messaging/frame.hpp>

namespace tutti::detail {

/// Queue of frames that are sent before the next message, in order. It keeps its memory, so that a steady loop
/// allocates nothing. Adding a frame may throw bad_alloc.
class frame_queue {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == frames_.size(); }
  void push_back(const frame& f) {
    if (first_ > frames_.size() / 2 && frames_.size() == frames_.capacity()) {  // moves each frame at most once
      frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    frames_.push_back(f);
  }
  void push_front(const frame& f) {
    if (first_ != 0)
      frames_[--first_] = f;
    else
      frames_.insert(frames_.begin(), f);
  }
  frame pop_front() noexcept {
    const frame f = frames_[first_++];
    if (empty()) clear();
    return f;
  }
  void clear() noexcept {
    frames_.clear();
    first_ = 0;
  }

 private:
  std::vector<frame> frames_;
  std::size_t first_ = 0;  // frames before it have been taken
};

}  // namespace tutti::detail
