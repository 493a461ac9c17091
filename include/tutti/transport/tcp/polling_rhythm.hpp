#pragma once
#include <cstdint>
#include <utility>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Policy of a rank that polls the sockets of some peers itself, because it waits for their messages: when to ask epoll
/// as well, and when those sockets need not be registered there. They need not while their messages come within a few
/// polls. The kernel would report each arrival to epoll as well, which adds a twentieth to the latency of a short
/// message.
class polling_rhythm {
 public:
  static constexpr std::uint32_t polls_per_look = 32, long_while = 32, enough = 64;

  /// Records a poll, by when `received` bytes have come in all.
  void note(std::uint64_t received) noexcept {
    ++polls_;
    if (std::exchange(received_, received) == received) {
      ++in_vain_;
    } else {
      in_vain_ = 0;
      ++prompt_;
    }
  }
  /// Returns true if epoll should be asked with this poll.
  [[nodiscard]] bool look_is_due() const noexcept { return polls_ % polls_per_look == 0 || in_vain_ == long_while; }
  /// Returns true if nothing has come for long.
  [[nodiscard]] bool is_lost() const noexcept { return in_vain_ >= long_while; }
  /// Returns true if something has come often since begin_again().
  [[nodiscard]] bool is_found() const noexcept { return prompt_ >= enough; }
  void begin_again() noexcept { prompt_ = 0; }

 private:
  std::uint64_t received_ = 0;
  std::uint32_t polls_ = 0;
  std::uint32_t in_vain_ = 0;  // polls in a row that found nothing
  std::uint32_t prompt_ = 0;   // polls that found something
};

}  // namespace tutti::detail
