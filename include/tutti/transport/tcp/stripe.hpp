#pragma once
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Where the writer of a stream that is dealt out to several connections has got to: a stripe to each in turn.
class stripe_cursor {
 public:
  static constexpr std::size_t stripe_bytes = std::size_t{64} << 10;

  explicit stripe_cursor(int connections) noexcept
      : connections_(connections), left_(connections == 1 ? ~std::size_t{0} : stripe_bytes) {}

  /// Which connection the next byte belongs to, and how many follow it there.
  [[nodiscard]] int connection() const noexcept { return at_; }
  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  /// Past `bytes` of those that are left(); true when it comes to the next connection.
  bool advance(std::size_t bytes) noexcept {
    if (connections_ == 1) return false;
    left_ -= bytes;
    if (left_ != 0) return false;
    at_ = (at_ + 1) % connections_;
    left_ = stripe_bytes;
    return true;
  }

 private:
  int connections_, at_ = 0;
  std::size_t left_;
};

}  // namespace tutti::detail
