#pragma once
#include <cstdint>
#include <utility>

#include <tutti/config.hpp>

namespace tutti::detail {

/// When a rank that asks sockets itself, those from which it awaits something, asks the poller, too, which knows of
/// all. While what it awaits comes within a few polls each time, the poller need not be told of those sockets: the
/// kernel would note each arrival there as well, which makes the way of a short message a twentieth longer.
class polling_rhythm {
 public:
  static constexpr std::uint32_t polls_per_look = 32, long_while = 32, enough = 64;

  /// A poll, by when so many bytes have come in all.
  void note(std::uint64_t received) noexcept {
    ++polls_;
    if (std::exchange(received_, received) == received) {
      ++in_vain_;
    } else {
      in_vain_ = 0;
      ++prompt_;
    }
  }
  [[nodiscard]] bool look_is_due() const noexcept { return polls_ % polls_per_look == 0 || in_vain_ == long_while; }
  /// Nothing has come for long.
  [[nodiscard]] bool is_lost() const noexcept { return in_vain_ >= long_while; }
  /// Something has come often since begin_again().
  [[nodiscard]] bool is_found() const noexcept { return prompt_ >= enough; }
  void begin_again() noexcept { prompt_ = 0; }

 private:
  std::uint64_t received_ = 0;
  std::uint32_t polls_ = 0;
  std::uint32_t in_vain_ = 0;  // of them, in a row
  std::uint32_t prompt_ = 0;   // that found something
};

}  // namespace tutti::detail
