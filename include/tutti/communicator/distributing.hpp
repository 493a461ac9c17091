#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <source_location>
#include <span>
#include <string>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/communicator/slip.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/as_counts.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/layout.hpp>

namespace tutti::detail {

/// The calls of a communicator whose ranks get different elements: gather, scatter, all_to_all, and blocks of any
/// lengths.
template <class Base>
class distributing_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;
  template <class Args>
  using started = typename Base::template started<Args>;

  /// Block r of everyone's `out` becomes rank r's `in`, which has blocks.size(r) elements. `blocks` cuts `out`, which
  /// may be larger; its counts are equal on all ranks, its offsets are each rank's own, and it belongs to the operation
  /// as the buffers do. `in` may be the own block of `out`; where it touches `out` at another place, as C interfaces
  /// have it, it is moved there first, which an operation that is prepared, or on a device, refuses. Collective. Costs:
  /// see algo/direct_uneven.hpp and algo/ring_uneven.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_gather_v_args> && alike<In, Out>
  started<all_gather_v_args> all_gather_v(In&& in, Out&& out, layout blocks, issue how = {},
                                          std::source_location where = std::source_location::current()) {
    auto from = read_only(in);
    const auto to = span_of(out);
    this->check_blocks("all_gather_v", blocks, to.size(), access::write);
    this->check_equal("all_gather_v", "in", from.size(), "the count of this rank", blocks.size(this->me()));
    if constexpr (Base::at_once)
      from = moved_to_own_block(from, to, blocks);
    else
      own_block("all_gather_v", access::read, from, to, blocks);
    return move<all_gather_v_args>(from, to, how, where, [&](auto& a) { a.blocks = blocks; });
  }

  /// Block r of the root's `out` becomes rank r's `in`, which on the root may be its block of `out`. The n blocks are
  /// the front of `out`, which may be larger; elsewhere it is not looked at. Collective; count and root equal.
  /// Costs: see algo/direct_rooted.hpp, algo/tree_rooted.hpp and algo/linear.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, gather_args> && alike<In, Out>
  started<gather_args> gather(In&& in, Out&& out, int root, issue how = {},
                              std::source_location where = std::source_location::current()) {
    this->check_rank("gather", "root", root);
    const auto from = read_only(in);
    auto to = span_of(out);
    const auto blocks = layout::of_equal(from.size());
    if (this->rank() == root) {
      const std::size_t all = this->for_all_ranks(from.size());
      this->check_room("gather", "in x world size", all, "out", to.size());
      to = to.first(all);
      own_block("gather", access::read, from, to, blocks);
    }
    return move<gather_args>(from, this->rank() == root ? to : to.first(0), how, where, [&](auto& a) {
      a.blocks = blocks;
      a.root = root;
    });
  }
  /// The same with blocks of any lengths, which the root alone needs to know: `blocks` cuts its `out`, which may be
  /// larger; elsewhere it is not looked at. An `in` of another length than the root's count for it is errc::mismatch.
  template <elements In, writable_elements Out>
    requires supports<backend_type, gather_v_args> && alike<In, Out>
  started<gather_v_args> gather_v(In&& in, Out&& out, layout blocks, int root, issue how = {},
                                  std::source_location where = std::source_location::current()) {
    this->check_rank("gather_v", "root", root);
    const auto from = read_only(in);
    const auto to = span_of(out);
    if (this->rank() == root) {
      this->check_blocks("gather_v", blocks, to.size(), access::write);
      this->check_equal("gather_v", "in", from.size(), "the count of this rank", blocks.size(this->me()));
      own_block("gather_v", access::read, from, to, blocks);
    }
    return move<gather_v_args>(from, this->rank() == root ? to : to.first(0), how, where, [&](auto& a) {
      a.blocks = this->rank() == root ? blocks : layout{};
      a.root = root;
    });
  }

  /// Rank r's `out` becomes block r of the root's `in`, whose count is n times that of `out` (which cannot be larger:
  /// its count is all that others than the root know of the blocks); on the root `out` may be its block of `in`.
  /// Elsewhere `in` is not looked at and may be empty. Collective; count and root equal on all ranks. Costs: see
  /// algo/direct_rooted.hpp, algo/tree_rooted.hpp and algo/linear.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, scatter_args> && alike<In, Out>
  started<scatter_args> scatter(In&& in, Out&& out, int root, issue how = {},
                                std::source_location where = std::source_location::current()) {
    this->check_rank("scatter", "root", root);
    const auto from = read_only(in);
    const auto to = span_of(out);
    const auto blocks = layout::of_equal(to.size());
    if (this->rank() == root) {
      this->check_equal("scatter", "in", from.size(), "out x world size", this->for_all_ranks(to.size()));
      own_block("scatter", access::write, from, to, blocks);
    }
    return move<scatter_args>(this->rank() == root ? from : from.first(0), to, how, where, [&](auto& a) {
      a.blocks = blocks;
      a.root = root;
    });
  }
  /// The same with blocks of any lengths, which the root alone needs to know: `blocks` cuts its `in`, which may be
  /// larger; elsewhere it is not looked at. An `out` of another length than the root's count for it is errc::mismatch.
  template <elements In, writable_elements Out>
    requires supports<backend_type, scatter_v_args> && alike<In, Out>
  started<scatter_v_args> scatter_v(In&& in, Out&& out, layout blocks, int root, issue how = {},
                                    std::source_location where = std::source_location::current()) {
    this->check_rank("scatter_v", "root", root);
    const auto from = read_only(in);
    const auto to = span_of(out);
    if (this->rank() == root) {
      this->check_blocks("scatter_v", blocks, from.size(), access::read);
      this->check_equal("scatter_v", "out", to.size(), "the count of this rank", blocks.size(this->me()));
      own_block("scatter_v", access::write, from, to, blocks);
    }
    return move<scatter_v_args>(this->rank() == root ? from : from.first(0), to, how, where, [&](auto& a) {
      a.blocks = this->rank() == root ? blocks : layout{};
      a.root = root;
    });
  }

  /// Block r of rank q's `out` becomes block q of rank r's `in`, which is n equal blocks. `out` may be `in`, or larger:
  /// the front is written. Collective; count equal on all ranks. Costs: see algo/direct_all_to_all.hpp and
  /// algo/pairwise.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_to_all_args> && alike<In, Out>
  started<all_to_all_args> all_to_all(In&& in, Out&& out, issue how = {},
                                      std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    this->check_room("all_to_all", "in", from.size(), "out", std::ranges::size(out));
    this->check_equal_blocks("all_to_all", from.size());
    const auto to = span_of(out).first(from.size());
    if (from.data() != to.data()) this->check_apart("all_to_all", from, to);
    return move<all_to_all_args>(from, to, how, where, [&](auto& a) {
      a.in_blocks = a.out_blocks = layout::of_equal(from.size() / this->ranks());
    });
  }
  /// The same with blocks of any lengths: `in_blocks` are what this rank has for each, `out_blocks` what it gets from
  /// each. The buffers may be larger and must not overlap. Where two ranks count differently, errc::mismatch.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_to_all_v_args> && alike<In, Out>
  started<all_to_all_v_args> all_to_all_v(In&& in, layout in_blocks, Out&& out, layout out_blocks, issue how = {},
                                          std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    const auto to = span_of(out);
    this->check_blocks("all_to_all_v", in_blocks, from.size(), access::read);
    this->check_blocks("all_to_all_v", out_blocks, to.size(), access::write);
    this->check_equal("all_to_all_v", "what this rank has for itself", in_blocks.size(this->me()),
                      "what it gets from itself", out_blocks.size(this->me()));
    this->check_apart("all_to_all_v", from, to, "pass separate ones: blocks of any lengths have no form in place");
    return move<all_to_all_v_args>(from, to, how, where, [&](auto& a) {
      a.in_blocks = in_blocks;
      a.out_blocks = out_blocks;
    });
  }

  // Calls that do not compile, with the reason: see slip.
  template <class... Given, slip Why = slip_of_call<use::write, Given...>()>
    requires(Why != slip::none)
  void gather(Given&&...) = delete;
  template <class... Given, slip Why = slip_of_call<use::write, Given...>()>
    requires(Why != slip::none)
  void scatter(Given&&...) = delete;
  template <class... Given, slip Why = slip_of_call<use::write, Given...>()>
    requires(Why != slip::none)
  void all_to_all(Given&&...) = delete;
  template <class In, class Out, class... Rest, slip Why = slip_of_call<use::write, In, Out>()>
    requires(Why != slip::none)
  void all_gather_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class In, class Out, class... Rest, slip Why = slip_of_call<use::write, In, Out>()>
    requires(Why != slip::none)
  void gather_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class In, class Out, class... Rest, slip Why = slip_of_call<use::write, In, Out>()>
    requires(Why != slip::none)
  void scatter_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class In, class Out, class... Rest, slip Why = slip_of_call<use::write, In, Out>()>
    requires(Why != slip::none)
  void all_to_all_v(In&&, layout, Out&&, layout, Rest&&...) = delete;

 private:
  /// `in`, or this rank's block of `out` with what it held, where they touch.
  template <class T>
  std::span<const T> moved_to_own_block(std::span<const T> in, std::span<T> out, const layout& blocks) const {
    const std::span<T> own = out.subspan(blocks.begin(this->me()), in.size());
    if (in.data() == own.data() || !overlap(in.data(), in.size_bytes(), out.data(), out.size_bytes())) return in;
    std::memmove(own.data(), in.data(), in.size_bytes());
    return own;
  }
  template <class T>
  void own_block(const char* call, access of, std::span<const T> in, std::span<T> out, const layout& blocks) const {
    this->check_own_block(call, of, in, out, blocks.begin(this->me()), blocks.size(this->me()));
  }

  template <class Args, class T, class Rest>
  started<Args> move(std::span<const T> in, std::span<T> out, const issue& how, const std::source_location& where,
                     Rest rest) {
    Args a;  // {} would clear all of it first
    a.in = erase_type(in);
    a.out = erase_type(out);
    rest(a);
    return this->start(shape_of<T>((std::max)(in.size(), out.size())), how, where, a);
  }
};

}  // namespace tutti::detail
