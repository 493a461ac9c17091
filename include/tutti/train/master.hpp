#pragma once
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <tutti/core/dtype.hpp>

namespace tutti::train {

/// Types of parameters that a divided optimizer keeps: those of 16 bits beside a copy in float32, its master, to which
/// steps are added that are too small for 16 bits.
template <class T>
concept parameter_number = std::floating_point<T> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// What a master is in, and so are gradients and what an update rule remembers.
template <parameter_number T>
using master_t = std::conditional_t<std::floating_point<T>, T, float>;
template <parameter_number T>
inline constexpr bool has_master = !std::same_as<T, master_t<T>>;

/// Into the master, exactly, and back, rounded to nearest even.
template <parameter_number T>
void widen(std::span<const T> from, std::span<master_t<T>> to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<master_t<T>>(from[i]);
}
template <parameter_number T>
void narrow(std::span<const master_t<T>> from, std::span<T> to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = T(from[i]);
}

}  // namespace tutti::train
