#pragma once
#include <utility>

#include <tutti/transport/link_core.hpp>

namespace tutti::algo {

/// Lets operations through one by one, in the order in which they have asked. Whoever leaves lets the next one in, so
/// that those who wait cost nothing, however many they are.
class turnstile {
 public:
  /// Waits until this operation is the oldest that has asked and has not left.
  class turn final : public condition {
   public:
    turn(turnstile& t, link_core& link) noexcept : turnstile_(t), link_(link) {
      before_ = std::exchange(t.last_, this);
      (before_ ? before_->behind_ : t.first_) = this;
      link.watch(*this, link_core::looks::later);
    }
    ~turn() override {
      leave();
      if (!left_) step_out();  // the link has failed: nobody comes in any more
    }
    /// Lets the next one in, which need not wait for the end of this turn; once it has come.
    void leave() noexcept {
      if (!finished() || left_) return;
      const bool was_inside = turnstile_.first_ == this;
      step_out();
      left_ = true;
      if (turn* const next = turnstile_.first_; next && was_inside) next->link_.look_from_now_on(*next);
    }
    bool holds() noexcept override { return turnstile_.first_ == this; }
    int waiting_for() const noexcept override { return -1; }

   private:
    void step_out() noexcept {
      (before_ ? before_->behind_ : turnstile_.first_) = behind_;
      (behind_ ? behind_->before_ : turnstile_.last_) = before_;
    }

    turnstile& turnstile_;
    link_core& link_;
    turn* before_ = nullptr;
    turn* behind_ = nullptr;
    bool left_ = false;
  };

  /// Nobody is inside or waits.
  [[nodiscard]] bool is_free() const noexcept { return first_ == nullptr; }

 private:
  turn* first_ = nullptr;  // who is inside
  turn* last_ = nullptr;
};

}  // namespace tutti::algo
