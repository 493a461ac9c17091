#pragma once
#include <concepts>
#include <span>
#include <type_traits>

#include <tutti/async/op_state.hpp>
#include <tutti/core/dtype.hpp>

namespace tutti::detail {

// Larger elements would not fit the staging slots of a machine with many ranks; staging memory is aligned to 64 bytes.
template <class T>
concept travels = element<T> && sizeof(T) <= 4096 && alignof(T) <= 64;

template <class R>
concept elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && std::ranges::borrowed_range<R> &&
                   travels<std::ranges::range_value_t<R>>;

template <class R>
concept writable_elements = elements<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

template <class T>
concept value = travels<T> && sizeof(T) <= op_state::value_bytes && alignof(T) <= op_state::value_alignment &&
                !std::ranges::range<T>;

/// Two ranges of the same type of elements.
template <class In, class Out>
concept alike = std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>;

/// Buffers one after another in memory, as spans of the elements to write to.
template <class R>
concept list_of_spans = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                        std::ranges::borrowed_range<R> && writable_elements<std::ranges::range_value_t<R>>;

template <class R>
auto span_of(R&& r) noexcept {
  return std::span{std::ranges::data(r), std::ranges::size(r)};
}
template <class R>
auto read_only(R&& r) noexcept {
  return std::span<const std::ranges::range_value_t<R>>{std::ranges::data(r), std::ranges::size(r)};
}

}  // namespace tutti::detail
