#pragma once
#include <utility>

#include <tutti/config.hpp>

namespace tutti::grad::detail {

/// The link between the user's object of a pass, which holds it, and the reducer, which points to it while the pass
/// lasts. Either may end first, and the user's object may move.
class pass_link {
 public:
  /// Links to a reducer by its pointer, which must be null.
  explicit pass_link(pass_link*& reducers) noexcept : reducers_(&reducers) { reducers = this; }
  pass_link(pass_link&& other) noexcept : reducers_(std::exchange(other.reducers_, nullptr)) {
    if (reducers_) *reducers_ = this;
  }
  pass_link& operator=(pass_link&&) = delete;
  ~pass_link() { release(); }

  /// Returns true until the pass has ended, or the object has been moved from.
  [[nodiscard]] bool holds() const noexcept { return reducers_ != nullptr; }
  /// Ends the link for both sides.
  void release() noexcept {
    if (reducers_) *std::exchange(reducers_, nullptr) = nullptr;
  }

 private:
  pass_link** reducers_;
};

}  // namespace tutti::grad::detail
