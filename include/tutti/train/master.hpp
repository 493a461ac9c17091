#pragma once
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <tutti/core/dtype.hpp>

namespace tutti::train {

/// A type of parameters that a sharded optimizer updates. For 16-bit types it also keeps a copy in float, the master
/// parameters, as many steps are too small to change a 16-bit number (Micikevicius et al., 2018).
template <class T>
concept parameter_number = std::floating_point<T> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// The type of master parameters, and so of gradients and of an update rule's memory.
template <parameter_number T>
using master_t = std::conditional_t<std::floating_point<T>, T, float>;
template <parameter_number T>
inline constexpr bool has_master = !std::same_as<T, master_t<T>>;

/// Convert parameters to the master's type, exactly, and back, rounded to nearest even.
template <parameter_number T>
void widen(std::span<const T> from, std::span<master_t<T>> to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<master_t<T>>(from[i]);
}
template <parameter_number T>
void narrow(std::span<const master_t<T>> from, std::span<T> to) noexcept {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = T(from[i]);
}

}  // namespace tutti::train
