#pragma once
#include <cstdint>
#include <utility>

#include <tutti/transport/link_core.hpp>

namespace tutti::algo {

/// Lets operations through one by one, in the order in which they have asked.
class turnstile {
 public:
  /// Waits until this operation is the oldest that has asked and has not left.
  class turn final : public condition {
   public:
    template <class Link>
    turn(turnstile& t, Link& link) noexcept : turnstile_(t), number_(t.asked_++) {
      link.watch(*this);
    }
    ~turn() override { leave(); }
    /// Lets the next one in, which need not wait for the end of this turn; once it has come.
    void leave() noexcept {
      if (finished() && !std::exchange(left_, true)) ++turnstile_.served_;
    }
    bool holds() noexcept override { return turnstile_.served_ == number_; }
    int waiting_for() const noexcept override { return -1; }

   private:
    turnstile& turnstile_;
    std::uint64_t number_;
    bool left_ = false;
  };

  /// Nobody is inside or waits.
  [[nodiscard]] bool is_free() const noexcept { return asked_ == served_; }

 private:
  std::uint64_t asked_ = 0, served_ = 0;
};

}  // namespace tutti::algo
