#pragma once
#include <cstddef>
#include <vector>

#include <tutti/transport/messaging/frame.hpp>

namespace tutti::detail {

/// Frames that go before the next message, in order. Keeps its memory: a steady loop allocates nothing.
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
  std::size_t first_ = 0;  // those before it are gone
};

}  // namespace tutti::detail
