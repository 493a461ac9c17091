#pragma once
#include <utility>

#include <tutti/transport/messaging/link_core.hpp>

namespace tutti::algo {

/// Ticket lock: lets operations proceed one at a time, in the order in which they have taken tickets. An operation that
/// leaves starts the next one, so waiting operations cost nothing, whatever their number.
class ticket_lock {
 public:
  /// Ticket of an operation, and the condition that it is the oldest that has not left. The destructor leaves.
  class ticket final : public condition {
   public:
    ticket(ticket_lock& t, link_core& link) noexcept : lock_(t), link_(link) {
      before_ = std::exchange(t.last_, this);
      (before_ ? before_->behind_ : t.first_) = this;
      link.watch(*this, link_core::polling::later);
    }
    ~ticket() override {
      leave();
      if (!left_) step_out();  // the link has failed: no further turn comes
    }
    /// Lets the next operation in before this one ends. Does nothing if the ticket's turn has not come.
    void leave() noexcept {
      if (!finished() || left_) return;
      const bool was_inside = lock_.first_ == this;
      step_out();
      left_ = true;
      if (ticket* const next = lock_.first_; next && was_inside) next->link_.start_polling(*next);
    }
    bool holds() noexcept override { return lock_.first_ == this; }
    int waiting_for() const noexcept override { return -1; }

   private:
    void step_out() noexcept {
      (before_ ? before_->behind_ : lock_.first_) = behind_;
      (behind_ ? behind_->before_ : lock_.last_) = before_;
    }

    ticket_lock& lock_;
    link_core& link_;
    ticket* before_ = nullptr;
    ticket* behind_ = nullptr;
    bool left_ = false;
  };

  /// Returns true if no operation holds a ticket.
  [[nodiscard]] bool is_free() const noexcept { return first_ == nullptr; }

 private:
  ticket* first_ = nullptr;  // the operation whose turn it is
  ticket* last_ = nullptr;
};

}  // namespace tutti::algo
