#pragma once
#include <cstddef>
#include <cstring>
#include <source_location>
#include <span>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/base.hpp>
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
    const auto args = this->checked_reduce_scatter(read_only(in), span_of(out), with, how.via);
    return this->start(shape_of<T>(args.in.count), how, where, [&](op_state&) { return args; });
  }

  /// The same with blocks of any lengths: rank r gets blocks.size(r) elements, the count of its `out`. `blocks` cuts
  /// `in`; its counts are equal on all ranks, its offsets are each rank's own, and it belongs to the operation as the
  /// buffers do. `in` may be larger than its blocks; `out` may be block r of it. Collective.
  /// Costs: see algo/direct_uneven.hpp and algo/ring_uneven.hpp.
  template <elements In, writable_elements Out, reduction_for<std::ranges::range_value_t<Out>> Op = sum_op>
    requires supports<backend_type, reduce_scatter_v_args> && alike<In, Out>
  tutti::op reduce_scatter_v(In&& in, Out&& out, layout blocks, Op with = {}, issue how = {},
                             std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<Out>;
    const auto from = read_only(in);
    const auto to = span_of(out);
    this->check_blocks("reduce_scatter_v", blocks, from.size(), access::read);
    this->check_equal("reduce_scatter_v", "out", to.size(), "the count of this rank", blocks.size(this->me()));
    if (to.data() != from.data() + blocks.begin(this->me())) this->check_apart("reduce_scatter_v", from, to);
    return this->start(shape_of<T>(from.size()), how, where, [&](op_state&) {
      return reduce_scatter_v_args{erase_type(from), erase_type(std::span<T>{to}), blocks, erase_type<T>(with),
                                   how.via};
    });
  }

  /// Reduces the elements of many buffers as one operation, in place: as all_reduce of all of them in a row, at its
  /// price. `buffers` is a range of spans; the spans and what they point to belong to the operation until it has ended.
  /// Collective; the elements of all buffers together are as many on all ranks. The buffers must not overlap.
  /// Costs: see algo/coalesced.hpp.
  template <std::ranges::borrowed_range R,
            reduction_for<std::ranges::range_value_t<std::ranges::range_value_t<R>>> Op = sum_op>
    requires supports<backend_type, all_reduce_coalesced_args> && list_of_spans<R>
  tutti::op all_reduce_coalesced(R&& buffers, Op with = {}, issue how = {},
                                 std::source_location where = std::source_location::current()) {
    using span_type = std::ranges::range_value_t<R>;
    using T = std::ranges::range_value_t<span_type>;
    constexpr auto item = [](const void* items, std::size_t i) noexcept {
      return std::as_writable_bytes(std::span{static_cast<const span_type*>(items)[i]});
    };
    buffer_list list{std::ranges::data(buffers), std::ranges::size(buffers), 0, sizeof(T), dtype_of<T>(), item};
    for (std::size_t i = 0; i < list.size; ++i) list.count += list[i].size() / sizeof(T);
    return this->start(shape_of<T>(list.count), how, where,
                       [&](op_state&) { return all_reduce_coalesced_args{list, erase_type<T>(with), how.via}; });
  }

  /// Reduces `in` over all ranks into the root's `out`, which has its size; elsewhere `out` is not looked at and may be
  /// empty. On the root `in` and `out` may be the same buffer. Collective; count, root and reduction equal on all
  /// ranks. Costs: see algo/direct_reduce.hpp, algo/tree_reduce.hpp and algo/chain.hpp.
  template <elements In, writable_elements Out, reduction_for<std::ranges::range_value_t<Out>> Op = sum_op>
    requires supports<backend_type, reduce_args> && alike<In, Out>
  tutti::op reduce(In&& in, Out&& out, int root, Op with = {}, issue how = {},
                   std::source_location where = std::source_location::current()) {
    this->check_rank("reduce", "root", root);
    return reduce_to(read_only(in), span_of(out), root, with, how, where);
  }
  /// The same in place on the root; the others' `inout` is left as it is.
  template <writable_elements R, reduction_for<std::ranges::range_value_t<R>> Op = sum_op>
    requires supports<backend_type, reduce_args>
  tutti::op reduce(R&& inout, int root, Op with = {}, issue how = {},
                   std::source_location where = std::source_location::current()) {
    this->check_rank("reduce", "root", root);
    return reduce_to(read_only(inout), span_of(inout), root, with, how, where);
  }

 protected:
  template <class T, class Op>
  reduce_scatter_args checked_reduce_scatter(std::span<const T> in, std::span<T> out, Op with,
                                             algorithm via = algorithm::automatic) const {
    this->check_equal("reduce_scatter", "in", in.size(), "out x world size", out.size() * this->ranks());
    if (out.data() != in.data() + out.size() * this->me()) this->check_apart("reduce_scatter", in, out);
    return {erase_type(in), erase_type(out), erase_type<T>(with), via};
  }

 private:
  template <class T, class Op>
  op reduce_into(std::span<const T> in, std::span<T> out, Op with, const issue& how,
                 const std::source_location& where) {
    return this->start(shape_of<T>(out.size()), how, where, [&](op_state&) {
      return all_reduce_args{erase_type(in), erase_type(out), erase_type<T>(with), how.via};
    });
  }

  template <class T, class Op>
  op reduce_to(std::span<const T> in, std::span<T> out, int root, Op with, const issue& how,
               const std::source_location& where) {
    if (this->rank() == root) {
      this->check_equal("reduce", "in", in.size(), "out", out.size());
      if (in.data() != out.data()) this->check_apart("reduce", in, out);
    }
    return this->start(shape_of<T>(in.size()), how, where, [&](op_state&) {
      return reduce_args{erase_type(in), this->rank() == root ? erase_type(out) : buffer{}, erase_type<T>(with), root,
                         how.via};
    });
  }
};

}  // namespace tutti::detail
