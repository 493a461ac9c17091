#pragma once
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

struct no_more {
  template <class Args>
  constexpr void operator()(Args&) const noexcept {}
};

/// Calls of a communicator that reduce. `with` is one of the library's reductions, an associative and commutative
/// callable (T, T) -> T, or, over ranges of std::byte, a raw_reduction: counts and layouts are then in its elements,
/// which are never split.
template <class Base>
class reducing_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;
  template <class Args>
  using started = typename Base::template started<Args>;

  /// Reduces `inout` over all ranks, in place and element by element. The order of operands is the same on all ranks,
  /// so all get equal bits. Collective; any count, equal on all ranks. Costs: see algo/shm/all_reduce.hpp,
  /// algo/message/recursive_doubling.hpp, algo/message/ring.hpp and algo/hierarchical/all_reduce.hpp.
  template <writable_elements R, reducer_of<R> Op = sum_op>
    requires supports<backend_type, all_reduce_args>
  started<all_reduce_args> all_reduce(R&& inout, Op with = {}, call_options how = {},
                                      std::source_location where = std::source_location::current()) {
    return reduce_into<all_reduce_args>(read_only(inout), span_of(inout), with, how, where);
  }
  /// Reduces `in` into another buffer, which must not overlap it. A longer `out` is fine: only its beginning is
  /// written.
  template <elements In, writable_elements Out, reducer_of<Out> Op = sum_op>
    requires supports<backend_type, all_reduce_args> && same_element<In, Out>
  started<all_reduce_args> all_reduce(In&& in, Out&& out, Op with = {}, call_options how = {},
                                      std::source_location where = std::source_location::current()) {
    return reduce_into<all_reduce_args>(read_only(in), span_of(out), with, how, where);
  }
  /// Reduces in place, where parts of this rank's operand are outside of `inout` (external segments): the result is the
  /// same as if they had been copied there first. Segments that other ranks read are copied at once; if the buffers are
  /// mapped, the others are read where they are. The list and the segments belong to the operation until it has ended,
  /// like the buffer. Ranks may differ in their segments. A segment beyond `inout`, or out of order, is a usage_error.
  template <writable_elements R, reduction_for<std::ranges::range_value_t<R>> Op>
    requires supports<backend_type, all_reduce_args> && Base::inline_path
  started<all_reduce_args> all_reduce(R&& inout, external_segments external, Op with, call_options how = {},
                                      std::source_location where = std::source_location::current()) {
    this->check_parts("all_reduce", external, span_of(inout).size());
    return reduce_into<all_reduce_args>(read_only(inout), span_of(inout), with, how, where,
                                        [&](all_reduce_args& a) { a.external = external; });
  }
  /// Reduces one number or small struct; the handle's result is the reduced value: `float l = world.all_reduce(loss,
  /// mean).wait()`.
  template <value T, reduction_for<T> Op = sum_op>
    requires supports<backend_type, all_reduce_args> && Base::inline_path
  basic_op<T> all_reduce(T value, Op with = {}, call_options how = {},
                         std::source_location where = std::source_location::current()) {
    return basic_op<T>{this->launch(shape_of<T>(1), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      const auto box = std::span<T>{reinterpret_cast<T*>(s.value), 1};
      return all_reduce_args{erase_type(std::span<const T>{box}), erase_type(box), erase_type<T>(with)};
    })};
  }

  /// Reduces n equal blocks and scatters them: rank r's `out` becomes block r of the reduction of all `in`. Collective.
  /// `out` may be block r of `in`. A longer `out` is fine: only its beginning is written. Costs: see
  /// algo/shm/all_gather.hpp, algo/message/ring.hpp and algo/hierarchical/blocks.hpp.
  template <elements In, writable_elements Out, reducer_of<Out> Op = sum_op>
    requires supports<backend_type, reduce_scatter_args> && same_element<In, Out>
  started<reduce_scatter_args> reduce_scatter(In&& in, Out&& out, Op with = {}, call_options how = {},
                                              std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    const std::size_t grain = grain_of(this->who("reduce_scatter"), with, from.size());
    this->check_equal_blocks("reduce_scatter", from.size() / grain);
    const std::size_t count = from.size() / this->ranks();
    const auto to = front<reduce_scatter_args>(span_of(out), count, "a block of in");
    this->check_own_block("reduce_scatter", access::write, from, to, count * this->me(), count);
    return compute<reduce_scatter_args>(from, to, with, how, where);
  }
  /// Reduces blocks of any lengths and scatters them: rank r gets blocks.size(r) elements. Collective.
  ///
  /// `blocks` lays out `in`, which may be longer. Its counts must be equal on all ranks; its offsets may differ. Like
  /// the buffers, it belongs to the operation until the handle has ended. `out` may be longer than this rank's block,
  /// and may be block r of `in` if no blocks overlap. Costs: see algo/shm/v.hpp and algo/message/ring_v.hpp.
  template <elements In, writable_elements Out, reducer_of<Out> Op = sum_op>
    requires supports<backend_type, reduce_scatter_v_args> && same_element<In, Out>
  started<reduce_scatter_v_args> reduce_scatter_v(In&& in, Out&& out, layout blocks, Op with = {},
                                                  call_options how = {},
                                                  std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    const std::size_t grain = grain_of(this->who("reduce_scatter_v"), with, from.size());
    this->check_blocks("reduce_scatter_v", blocks, from.size() / grain, access::read);
    const auto to =
        front<reduce_scatter_v_args>(span_of(out), blocks.size(this->me()) * grain, "the count of this rank");
    const std::size_t begin = blocks.begin(this->me()) * grain;
    this->check_own_block("reduce_scatter_v", access::write, from, to, begin, to.size());
    if (from.data() && to.data() == from.data() + begin)  // other ranks read what this one writes
      this->check_blocks("reduce_scatter_v in place", blocks, from.size() / grain, access::write);
    return compute<reduce_scatter_v_args>(from, to, with, how, where, [&](auto& a) { a.blocks = blocks; });
  }

  /// Reduces the elements of many buffers in place as one operation: like an all_reduce of all of them in a row, at its
  /// cost. `buffers` is a range of spans; the spans and their elements belong to the operation until it has ended.
  /// Collective; the number of elements of all buffers together must be equal on all ranks. Two buffers that overlap
  /// are a usage_error. Costs: see algo/message/coalesced.hpp.
  template <std::ranges::borrowed_range R, reducer_of<std::ranges::range_value_t<R>> Op = sum_op>
    requires supports<backend_type, all_reduce_coalesced_args> && list_of_spans<R>
  started<all_reduce_coalesced_args> all_reduce_coalesced(
      R&& buffers, Op with = {}, call_options how = {}, std::source_location where = std::source_location::current()) {
    using span_type = std::ranges::range_value_t<R>;
    using T = std::ranges::range_value_t<span_type>;
    constexpr auto item = [](const void* items, std::size_t i) noexcept {
      return std::as_writable_bytes(std::span{static_cast<const span_type*>(items)[i]});
    };
    const auto who = this->who("all_reduce_coalesced");
    (void)grain_of(who, with, 0);
    const buffer one = erase_for(with, std::span<T>{});
    all_reduce_coalesced_args a{
        {std::ranges::data(buffers), std::ranges::size(buffers), 0, one.element_bytes, one.type, item}, {}};
    erase_reduction<T>(with, a.op);
    for (std::size_t i = 0; i < a.data.size; ++i) {
      const std::size_t bytes = a.data[i].size();
      (void)grain_of(who, with, bytes);
      a.data.count += bytes / one.element_bytes;
    }
    detail::check_disjoint(who, a.data);
    return this->start({a.data.count, one.type, one.element_bytes}, how, where, a);
  }

  /// Reduces `in` over all ranks into the beginning of the root's `out`. `out` is ignored on other ranks and may be
  /// empty there. On the root `in` and `out` may be the same buffer. Collective; count, root and reduction must be
  /// equal on all ranks. Costs: see algo/shm/reduce.hpp, algo/message/tree_reduce.hpp and algo/message/chain.hpp.
  template <elements In, writable_elements Out, reducer_of<Out> Op = sum_op>
    requires supports<backend_type, reduce_args> && same_element<In, Out>
  started<reduce_args> reduce(In&& in, Out&& out, int root, Op with = {}, call_options how = {},
                              std::source_location where = std::source_location::current()) {
    this->check_rank("reduce", "root", root);
    const auto set_root = [&](reduce_args& a) { a.root = root; };
    if (this->rank() == root) return reduce_into<reduce_args>(read_only(in), span_of(out), with, how, where, set_root);
    (void)grain_of(this->who("reduce"), with, std::ranges::size(in));
    return compute<reduce_args>(read_only(in), span_of(out).first(0), with, how, where, set_root);
  }
  /// Reduces in place on the root; the other ranks' `inout` is not changed.
  template <writable_elements R, reducer_of<R> Op = sum_op>
    requires supports<backend_type, reduce_args>
  started<reduce_args> reduce(R&& inout, int root, Op with = {}, call_options how = {},
                              std::source_location where = std::source_location::current()) {
    const auto data = span_of(inout);
    return reduce(data, data, root, with, how, where);
  }

  // Deleted overloads for calls that are wrong, with the reason in the compiler's message: see argument_error.
  template <class... Given, argument_error Why = error_of_value_or_call<use::reduce, Base::by_value, Given...>()>
    requires(Why != argument_error::none)
  void all_reduce(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::reduce, Given...>()>
    requires(Why != argument_error::none)
  void reduce_scatter(Given&&...) = delete;
  template <class In, class Out, class... Rest, argument_error Why = error_of_call<use::reduce, In, Out, Rest...>()>
    requires(Why != argument_error::none)
  void reduce_scatter_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class R, class... Rest, argument_error Why = error_of_list<R, Rest...>()>
    requires(Why != argument_error::none)
  void all_reduce_coalesced(R&&, Rest&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::reduce, Given...>()>
    requires(Why != argument_error::none)
  void reduce(Given&&...) = delete;

 protected:
  /// Starts a reduction in place, or into the beginning of a separate `out`.
  template <class Args, class T, class Op, class Rest = no_more>
  started<Args> reduce_into(std::span<const T> in, std::span<T> out, Op with, const call_options& how,
                            const std::source_location& where, Rest rest = {}) {
    (void)grain_of(this->who(Args::name), with, in.size());
    const auto to = front<Args>(out, in.size(), "in");
    if (in.data() != to.data()) this->check_disjoint(Args::name, in, to);
    return compute<Args>(in, to, with, how, where, rest);
  }

 private:
  template <class Args, class T>
  std::span<T> front(std::span<T> out, std::size_t count, const char* what) const {
    this->check_room(Args::name, what, count, "out", out.size());
    return out.first(count);
  }

  // `rest` sets the arguments that only some of these collectives have.
  template <class Args, class T, class Op, class Rest = no_more>
  started<Args> compute(std::span<const T> in, std::span<T> out, Op with, const call_options& how,
                        const std::source_location& where, Rest rest = {}) {
    Args a;  // not `{}`, which would clear it first
    a.in = erase_for(with, in);
    a.out = erase_for(with, out);
    erase_reduction<T>(with, a.op);
    rest(a);
    return this->start(shape_of(a.in), how, where, a);
  }
};

}  // namespace tutti::detail
