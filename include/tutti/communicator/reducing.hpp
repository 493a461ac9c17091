#pragma once
#include <cstddef>
#include <cstring>
#include <source_location>
#include <span>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// The calls of a communicator that compute.
template <class Base>
class reducing_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;

  /// Reduces `inout` over all ranks, in place: element i of every rank, in an order that is the same on all ranks,
  /// which therefore end with equal bits. Collective; any count, equal on all ranks. `with` is one of the library's
  /// reductions or an associative and commutative callable (T, T) -> T. Costs: see algo/direct.hpp,
  /// algo/recursive_doubling.hpp and algo/ring.hpp.
  template <writable_elements R, reduction_for<std::ranges::range_value_t<R>> Op = sum_op>
    requires supports<backend_type, all_reduce_args>
  tutti::op all_reduce(R&& inout, Op with = {}, issue how = {},
                       std::source_location where = std::source_location::current()) {
    const auto data = span_of(inout);
    return reduce_into<std::ranges::range_value_t<R>>(data, data, with, how, where);
  }

  /// The same into another buffer of equal size, which must not overlap.
  template <elements In, writable_elements Out, reduction_for<std::ranges::range_value_t<Out>> Op = sum_op>
    requires supports<backend_type, all_reduce_args> && alike<In, Out>
  tutti::op all_reduce(In&& in, Out&& out, Op with = {}, issue how = {},
                       std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    const auto to = span_of(out);
    this->check_equal("all_reduce", "in", from.size(), "out", to.size());
    if (from.data() != to.data()) this->check_apart("all_reduce", from, to);
    return reduce_into<std::ranges::range_value_t<Out>>(from, to, with, how, where);
  }

  /// Reduces one number or small struct; the handle's result is the reduced value: `float l = world.all_reduce(loss,
  /// mean).wait()`.
  template <value T, reduction_for<T> Op = sum_op>
    requires supports<backend_type, all_reduce_args>
  basic_op<T> all_reduce(T value, Op with = {}, issue how = {},
                         std::source_location where = std::source_location::current()) {
    return basic_op<T>{this->launch(shape_of<T>(1), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      const auto box = std::span<T>{reinterpret_cast<T*>(s.value), 1};
      return all_reduce_args{erase_type(std::span<const T>{box}), erase_type(box), erase_type<T>(with), how.via};
    })};
  }

  /// Rank r gets block r of the reduction of everyone's `in`, whose count is n times that of `out`. `out` may be block
  /// r of `in`. Collective. Costs: see algo/direct_gather.hpp and algo/ring.hpp.
  template <elements In, writable_elements Out, reduction_for<std::ranges::range_value_t<Out>> Op = sum_op>
    requires supports<backend_type, reduce_scatter_args> && alike<In, Out>
  tutti::op reduce_scatter(In&& in, Out&& out, Op with = {}, issue how = {},
                           std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<Out>;
    const auto from = read_only(in);
    const auto to = span_of(out);
    this->check_equal("reduce_scatter", "in", from.size(), "out x world size", to.size() * this->ranks());
    if (to.data() != from.data() + to.size() * this->me()) this->check_apart("reduce_scatter", from, to);
    return this->start(shape_of<T>(from.size()), how, where, [&](op_state&) {
      return reduce_scatter_args{erase_type(from), erase_type(std::span<T>{to}), erase_type<T>(with), how.via};
    });
  }

 private:
  template <class T, class Op>
  op reduce_into(std::span<const T> in, std::span<T> out, Op with, const issue& how,
                 const std::source_location& where) {
    return this->start(shape_of<T>(out.size()), how, where, [&](op_state&) {
      return all_reduce_args{erase_type(in), erase_type(out), erase_type<T>(with), how.via};
    });
  }
};

}  // namespace tutti::detail
