#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tutti/communicator/elements.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/reduction/raw_reduction.hpp>

namespace tutti::detail {

/// Error in the arguments of a call, in words that compilers print: each call has a deleted overload that takes them.
/// It is a template argument, not a static_assert, so that concepts can still test which calls compile.
enum class argument_error : std::uint8_t {
  none,
  this_buffer_is_a_temporary_and_gone_before_the_operation_ends_so_pass_a_named_container_or_a_span,
  these_elements_do_not_lie_one_after_another_so_for_vector_of_bool_use_vector_of_char,
  these_elements_cannot_travel_as_they_must_be_trivially_copyable_and_of_at_most_4096_bytes,
  this_buffer_is_written_and_must_not_be_const,
  in_and_out_must_have_the_same_type_of_elements,
  each_of_these_buffers_must_be_a_span_of_elements_to_write_to,
  the_library_cannot_reduce_these_elements_so_pass_a_function_of_two_that_returns_one_and_captures_24_bytes_at_most,
  a_raw_reduction_takes_ranges_of_std_byte_as_std_as_writable_bytes_makes_them,
  a_value_is_trivially_copyable_and_has_64_bytes_and_an_alignment_of_16_at_most_so_pass_a_span_of_another,
  values_cannot_be_prepared_so_pass_a_span_of_one_that_outlives_it,
  values_are_in_host_memory_so_pass_them_to_a_communicator_of_the_host
};

/// Use of a call's buffer. If it has two, the second is written.
enum class use : std::uint8_t { read, write, reduce };

template <class R>
consteval argument_error error_of_buffer(use how) {
  using enum argument_error;
  if constexpr (!std::ranges::borrowed_range<R>)
    return this_buffer_is_a_temporary_and_gone_before_the_operation_ends_so_pass_a_named_container_or_a_span;
  else if constexpr (!std::ranges::contiguous_range<R> || !std::ranges::sized_range<R>)
    return these_elements_do_not_lie_one_after_another_so_for_vector_of_bool_use_vector_of_char;
  else if constexpr (!transferable<std::ranges::range_value_t<R>>)
    return these_elements_cannot_travel_as_they_must_be_trivially_copyable_and_of_at_most_4096_bytes;
  else
    return how == use::read || writable_elements<R> ? none : this_buffer_is_written_and_must_not_be_const;
}

/// Returns the error of a reduction over elements of type T. The reduction is the first argument, or follows a root;
/// without one, the call sums.
template <class T, class Op = sum_op, class... Rest>
consteval argument_error error_of_reduction() {
  using enum argument_error;
  using given = std::remove_cvref_t<Op>;
  if constexpr (std::convertible_to<Op, int>)
    return error_of_reduction<T, Rest...>();
  else if constexpr (std::same_as<given, raw_reduction>)
    return std::same_as<T, std::byte> ? none
                                      : a_raw_reduction_takes_ranges_of_std_byte_as_std_as_writable_bytes_makes_them;
  else if constexpr (reduction_for<given, T> || std::same_as<given, call_options>)
    return none;
  else
    return the_library_cannot_reduce_these_elements_so_pass_a_function_of_two_that_returns_one_and_captures_24_bytes_at_most;
}

template <use How, class A, class... Rest>
consteval argument_error error_of_one() {
  if constexpr (!std::ranges::range<A>) {
    if constexpr (How == use::reduce && value<std::remove_cvref_t<A>>)
      return error_of_reduction<std::remove_cvref_t<A>, Rest...>();
    return argument_error::none;
  } else {
    constexpr argument_error found = error_of_buffer<A>(How);
    if constexpr (found == argument_error::none && How == use::reduce)
      return error_of_reduction<std::ranges::range_value_t<A>, Rest...>();
    return found;
  }
}

template <use How, class A, class B = void, class... Rest>
consteval argument_error error_of_call() {
  if constexpr (std::ranges::range<A> && std::ranges::range<B>) {
    constexpr argument_error first = error_of_buffer<A>(use::read), second = error_of_one<How, B, Rest...>();
    if constexpr (first != argument_error::none || second != argument_error::none)
      return first != argument_error::none ? first : second;
    else
      return same_element<A, B> ? argument_error::none : argument_error::in_and_out_must_have_the_same_type_of_elements;
  } else if constexpr (std::is_void_v<B>) {
    return error_of_one<How, A>();
  } else {
    return error_of_one<How, A, B, Rest...>();
  }
}

static_assert(op_state::value_bytes == 64 && op_state::value_alignment == 16, "a slip says so");

/// Returns the error of a call that also takes one value, unless `by_value` gives the reason why it does not.
template <use How, argument_error by_value, class A, class... Rest>
consteval argument_error error_of_value_or_call() {
  if constexpr (std::ranges::range<A>)
    return error_of_call<How, A, Rest...>();
  else if constexpr (!value<std::remove_cvref_t<A>>)
    return argument_error::
        a_value_is_trivially_copyable_and_has_64_bytes_and_an_alignment_of_16_at_most_so_pass_a_span_of_another;
  else
    return by_value != argument_error::none ? by_value : error_of_call<How, A, Rest...>();
}

/// Returns the error of a call with a range of spans.
template <class R, class... Rest>
consteval argument_error error_of_list() {
  if constexpr (!std::ranges::range<R>) {
    return argument_error::none;
  } else if constexpr (!std::ranges::borrowed_range<R> || !std::ranges::contiguous_range<R>) {
    return error_of_buffer<R>(use::read);
  } else if constexpr (!list_of_spans<R>) {
    return argument_error::each_of_these_buffers_must_be_a_span_of_elements_to_write_to;
  } else {
    return error_of_reduction<std::ranges::range_value_t<std::ranges::range_value_t<R>>, Rest...>();
  }
}

}  // namespace tutti::detail
