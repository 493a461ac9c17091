#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <tutti/async/op_state.hpp>
#include <tutti/communicator/call_context.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/reduction/raw_reduction.hpp>

namespace tutti::detail {

/// Element that can be sent. Larger ones would not fit into the staging slots of a node with many ranks; staging memory
/// is aligned to 64 bytes.
template <class T>
concept transferable = element<T> && sizeof(T) <= 4096 && alignof(T) <= 64;

/// Contiguous range of such elements whose memory outlives the call: a named std::vector or array, or a std::span.
template <class R>
concept elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && std::ranges::borrowed_range<R> &&
                   transferable<std::ranges::range_value_t<R>>;

template <class R>
concept writable_elements = elements<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// One number or small struct that a call takes by value.
template <class T>
concept value = transferable<T> && sizeof(T) <= op_state::value_bytes && alignof(T) <= op_state::value_alignment &&
                !std::ranges::range<T>;

/// Two ranges with the same element type.
template <class In, class Out>
concept same_element = std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>;

/// Contiguous list of buffers, as spans of elements that may be written.
template <class R>
concept list_of_spans = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                        std::ranges::borrowed_range<R> && writable_elements<std::ranges::range_value_t<R>>;

/// Reduction of the elements of `R`: one of their type, or, for std::byte, a raw_reduction over opaque elements.
template <class Op, class R>
concept reducer_of = reduction_for<Op, std::ranges::range_value_t<R>> ||
                     (std::same_as<Op, raw_reduction> && std::same_as<std::ranges::range_value_t<R>, std::byte>);

/// Returns the number of buffer elements that form one element of the reduction. Throws usage_error for an invalid
/// raw_reduction, and if `n` elements of the buffer are not a whole number of its elements.
template <class Op>
std::size_t grain_of(const call_context& who, const Op& with, std::size_t n) {
  if constexpr (!std::same_as<Op, raw_reduction>) {
    return 1;
  } else {
    if (!with.valid())
      who.refuse("a raw_reduction needs a function and an element of 1 to " +
                 std::to_string(raw_reduction::most_bytes) + " bytes; this one " +
                 (with.fold && with.fold_for   ? "has two functions"
                  : with.fold || with.fold_for ? "is of " + std::to_string(with.element_bytes)
                                               : "has no function"));
    if (n % with.element_bytes != 0)
      who.refuse(std::to_string(n) + " bytes are not whole elements of " + std::to_string(with.element_bytes) +
                 " bytes");
    return with.element_bytes;
  }
}
/// Returns the buffer in the reduction's own elements, with its type erased.
template <class Op, class T>
auto erase_for(const Op& with, std::span<T> data) noexcept {
  auto erased = erase_type(data);
  if constexpr (std::same_as<Op, raw_reduction>) {
    erased.count = data.size() / with.element_bytes;
    erased.element_bytes = static_cast<std::uint32_t>(with.element_bytes);
    erased.type = dtype::opaque;
  }
  return erased;
}
template <class T, class Op>
void erase_reduction(const Op& with, reduction& r) noexcept {
  if constexpr (std::same_as<Op, raw_reduction>)
    erase_type(with, r);
  else
    erase_type<T>(with, r);
}

template <class R>
auto span_of(R&& r) noexcept {
  return std::span{std::ranges::data(r), std::ranges::size(r)};
}
template <class R>
auto read_only(R&& r) noexcept {
  return std::span<const std::ranges::range_value_t<R>>{std::ranges::data(r), std::ranges::size(r)};
}

}  // namespace tutti::detail
