#pragma once
#include <cstdint>
#include <string_view>

#include <tutti/core/hash.hpp>

namespace tutti::train {

/// A seed from which independent ones are derived: `seed{42}.rank(world).epoch(3).named("dropout").value()`. A value:
/// each call returns another seed, which depends on all calls before it and on their order, and is the same on every
/// machine and with every compiler. It suits any generator: `std::mt19937_64 random{seed{42}.rank(world).value()}`.
/// Leave out rank() for numbers that must be equal on all ranks, such as initial parameters.
class seed {
 public:
  constexpr explicit seed(std::uint64_t value) noexcept : state_(mixed(value)) {}

  /// Returns the seed of one rank, for numbers that must differ between ranks: dropout, noise, augmentation.
  [[nodiscard]] constexpr seed rank(int r) const noexcept { return with(1, static_cast<std::uint64_t>(r)); }
  template <class Comm>
    requires requires(const Comm& c) { c.rank(); }
  [[nodiscard]] constexpr seed rank(const Comm& world) const noexcept {
    return rank(world.rank());
  }
  /// Return the seed of one epoch, and that of one step or of anything else that is counted.
  [[nodiscard]] constexpr seed epoch(std::uint64_t e) const noexcept { return with(2, e); }
  [[nodiscard]] constexpr seed step(std::uint64_t s) const noexcept { return with(3, s); }
  /// Returns the seed for one purpose.
  [[nodiscard]] constexpr seed named(std::string_view purpose) const noexcept {
    return with(4, tutti::detail::fnv(tutti::detail::fnv_start, purpose));
  }

  /// Returns the seed as a number, for a generator.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return state_; }

  friend constexpr bool operator==(seed, seed) = default;

 private:
  static constexpr std::uint64_t mixed(std::uint64_t z) noexcept {
    return tutti::detail::splitmix(z + tutti::detail::splitmix_step);
  }
  [[nodiscard]] constexpr seed with(std::uint64_t kind, std::uint64_t number) const noexcept {
    seed s = *this;
    s.state_ = mixed(mixed(state_ ^ kind) + number);
    return s;
  }

  std::uint64_t state_;
};

}  // namespace tutti::train
