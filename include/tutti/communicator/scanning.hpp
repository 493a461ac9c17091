#pragma once
#include <concepts>
#include <cstddef>
#include <cstring>
#include <source_location>
#include <span>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/argument_error.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// Calls of a communicator that reduce over the ranks up to each rank.
template <class Base>
class scanning_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;
  template <class Args>
  using started = typename Base::template started<Args>;

  /// Reduces over the ranks up to this one: rank r's `out` becomes the reduction of the `in` of ranks 0 to r, element
  /// by element and in rank order; a mean is that of these ranks. Collective; count and reduction must be equal on all
  /// ranks. `out` may be the same buffer as `in`, or a longer one: its beginning is written. Costs: see
  /// algo/shm/scan.hpp, algo/message/scan.hpp and algo/message/chain.hpp.
  template <elements In, writable_elements Out, reducer_of<Out> Op = sum_op>
    requires supports<backend_type, scan_args> && same_element<In, Out>
  started<scan_args> scan(In&& in, Out&& out, Op with = {}, call_options how = {},
                          std::source_location where = std::source_location::current()) {
    return this->template reduce_into<scan_args>(read_only(in), span_of(out), with, how, where);
  }
  /// Scans in place.
  template <writable_elements R, reducer_of<R> Op = sum_op>
    requires supports<backend_type, scan_args>
  started<scan_args> scan(R&& inout, Op with = {}, call_options how = {},
                          std::source_location where = std::source_location::current()) {
    return this->template reduce_into<scan_args>(read_only(inout), span_of(inout), with, how, where);
  }
  /// Scans one number or small struct; the handle's result is this rank's value.
  template <value T, reduction_for<T> Op = sum_op>
    requires supports<backend_type, scan_args> && Base::inline_path
  basic_op<T> scan(T value, Op with = {}, call_options how = {},
                   std::source_location where = std::source_location::current()) {
    return basic_op<T>{this->launch(shape_of<T>(1), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      const auto box = std::span<T>{reinterpret_cast<T*>(s.value), 1};
      return scan_args{erase_type(std::span<const T>{box}), erase_type(box), erase_type<T>(with)};
    })};
  }

  /// Reduces over the ranks below this one: rank r's `out` becomes the reduction of the `in` of ranks 0 to r - 1. Rank
  /// 0's `out` is not changed: set it to the neutral element, for example zero. Otherwise as scan of two buffers, which
  /// may be the same.
  template <elements In, writable_elements Out, reducer_of<Out> Op = sum_op>
    requires supports<backend_type, exclusive_scan_args> && same_element<In, Out>
  started<exclusive_scan_args> exclusive_scan(In&& in, Out&& out, Op with = {}, call_options how = {},
                                              std::source_location where = std::source_location::current()) {
    return this->template reduce_into<exclusive_scan_args>(read_only(in), span_of(out), with, how, where);
  }
  /// Scans one number or small struct of at most 32 bytes over the ranks below this one; rank 0's result is T{}. Gives
  /// the offset of a rank's part in a sequence of all parts: `std::size_t begin =
  /// world.exclusive_scan(mine.size()).wait()`.
  template <value T, reduction_for<T> Op = sum_op>
    requires supports<backend_type, exclusive_scan_args> && Base::inline_path &&
             (sizeof(T) <= op_state::value_bytes / 2) && std::default_initializable<T>
  basic_op<T> exclusive_scan(T value, Op with = {}, call_options how = {},
                             std::source_location where = std::source_location::current()) {
    return basic_op<T>{this->launch(shape_of<T>(1), how, where, [&](op_state& s) {
      const T first{};
      std::byte* const operand = s.value + op_state::value_bytes / 2;
      std::memcpy(s.value, &first, sizeof(T));
      std::memcpy(operand, &value, sizeof(T));
      return exclusive_scan_args{{erase_type(std::span<const T>{reinterpret_cast<const T*>(operand), 1}),
                                  erase_type(std::span<T>{reinterpret_cast<T*>(s.value), 1}), erase_type<T>(with)}};
    })};
  }

  // Deleted overloads for calls that are wrong, with the reason in the compiler's message: see argument_error.
  template <class... Given, argument_error Why = error_of_call<use::reduce, Given...>()>
    requires(Why != argument_error::none)
  void scan(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::reduce, Given...>()>
    requires(Why != argument_error::none)
  void exclusive_scan(Given&&...) = delete;
};

}  // namespace tutti::detail
