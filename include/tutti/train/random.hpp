#pragma once
#include <cstdint>
#include <string_view>

#include <tutti/core/hash.hpp>
#include <tutti/core/splitmix.hpp>

namespace tutti::train {

/// Seeds that have nothing to do with each other, from one: `seed{42}.rank(world).epoch(3).named("dropout").value()`.
/// A value: every call gives another seed, which depends on all calls before it and their order, and is the same on
/// every machine and compiler. Give it to any generator: `std::mt19937_64 random{seed{42}.rank(world).value()}`.
/// What must be equal on all ranks (initial parameters, an augmentation of whole batches) leaves out rank().
class seed {
 public:
  constexpr explicit seed(std::uint64_t value) noexcept : state_(mixed(value)) {}

  /// For one rank: dropout, noise, augmentations, which must differ between ranks.
  [[nodiscard]] constexpr seed rank(int r) const noexcept { return with(1, static_cast<std::uint64_t>(r)); }
  template <class Comm>
    requires requires(const Comm& c) { c.rank(); }
  [[nodiscard]] constexpr seed rank(const Comm& world) const noexcept {
    return rank(world.rank());
  }
  /// For one epoch; and for one step, or whatever else is counted.
  [[nodiscard]] constexpr seed epoch(std::uint64_t e) const noexcept { return with(2, e); }
  [[nodiscard]] constexpr seed step(std::uint64_t s) const noexcept { return with(3, s); }
  /// For one purpose.
  [[nodiscard]] constexpr seed named(std::string_view purpose) const noexcept {
    return with(4, tutti::detail::fnv(tutti::detail::fnv_start, purpose));
  }

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
