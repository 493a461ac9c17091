#pragma once
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Position of the writer of a byte stream that is dealt out to several connections, a stripe to each in turn.
class stripe_cursor {
 public:
  static constexpr std::size_t stripe_bytes = std::size_t{64} << 10;

  explicit stripe_cursor(int connections) noexcept
      : connections_(connections), left_(connections == 1 ? ~std::size_t{0} : stripe_bytes) {}

  /// Returns the connection that the next byte goes to.
  [[nodiscard]] int connection() const noexcept { return at_; }
  /// Returns the number of bytes that go there before the next connection's turn.
  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  /// Moves past `bytes`, left() at most. Returns true if the next connection's turn begins.
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
