#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <source_location>
#include <span>
#include <string>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/argument_error.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/as_counts.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/layout.hpp>

namespace tutti::detail {

/// Calls of a communicator in which ranks get different elements: gather, scatter, all_to_all, and blocks of any
/// lengths.
template <class Base>
class distributing_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;
  template <class Args>
  using started = typename Base::template started<Args>;

  /// Gathers blocks of any lengths on all ranks: block r of every rank's `out` becomes rank r's `in`, which has
  /// blocks.size(r) elements. Collective.
  ///
  /// `blocks` lays out `out`, which may be longer. Its counts must be equal on all ranks; its offsets may differ. Like
  /// the buffers, it belongs to the operation until the handle has ended. `in` may be this rank's block of `out`. If it
  /// overlaps `out` at another place, as C interfaces allow, it is moved to its block first; a prepared operation, and
  /// one on a device, refuses that. Costs: see algo/shm/v.hpp and algo/message/ring_v.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_gather_v_args> && same_element<In, Out>
  started<all_gather_v_args> all_gather_v(In&& in, Out&& out, layout blocks, call_options how = {},
                                          std::source_location where = std::source_location::current()) {
    auto from = read_only(in);
    const auto to = span_of(out);
    this->check_blocks("all_gather_v", blocks, to.size(), access::write);
    this->check_equal("all_gather_v", "in", from.size(), "the count of this rank", blocks.size(this->me()));
    if constexpr (Base::inline_path)
      from = moved_to_own_block(from, to, blocks, how);
    else
      own_block("all_gather_v", access::read, from, to, blocks);
    return move<all_gather_v_args>(from, to, how, where, [&](auto& a) { a.blocks = blocks; });
  }

  /// Gathers equal blocks on the root: block r of its `out` becomes rank r's `in`. Collective; count and root must be
  /// equal on all ranks. On the root, `in` may be its block of `out`. Only the first n blocks of a longer `out` are
  /// written. `out` is ignored on other ranks. Costs: see algo/shm/gather_scatter.hpp,
  /// algo/message/tree_gather_scatter.hpp and algo/message/linear.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, gather_args> && same_element<In, Out>
  started<gather_args> gather(In&& in, Out&& out, int root, call_options how = {},
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
  /// Gathers blocks of any lengths on the root. `blocks` lays out the root's `out`, which may be longer; it is ignored
  /// on other ranks, which need not know it. A rank whose `in` is not as long as the root's count for it causes
  /// errc::mismatch.
  template <elements In, writable_elements Out>
    requires supports<backend_type, gather_v_args> && same_element<In, Out>
  started<gather_v_args> gather_v(In&& in, Out&& out, layout blocks, int root, call_options how = {},
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

  /// Scatters the root's `in`: rank r's `out` becomes block r of it. Collective; count and root must be equal on all
  /// ranks. The count of `in` is n times that of `out`, which cannot be longer than a block, because the other ranks
  /// know the length of the blocks from it alone. On the root, `out` may be its block of `in`. `in` is ignored on other
  /// ranks and may be empty there. Costs: see algo/shm/gather_scatter.hpp, algo/message/tree_gather_scatter.hpp and
  /// algo/message/linear.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, scatter_args> && same_element<In, Out>
  started<scatter_args> scatter(In&& in, Out&& out, int root, call_options how = {},
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
  /// Scatters blocks of any lengths. `blocks` lays out the root's `in`, which may be longer; it is ignored on other
  /// ranks, which need not know it. A rank whose `out` is not as long as the root's count for it causes errc::mismatch.
  template <elements In, writable_elements Out>
    requires supports<backend_type, scatter_v_args> && same_element<In, Out>
  started<scatter_v_args> scatter_v(In&& in, Out&& out, layout blocks, int root, call_options how = {},
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

  /// Exchanges equal blocks between all ranks: block r of rank q's `out` becomes block q of rank r's `in`, which is n
  /// equal blocks. Collective; the count must be equal on all ranks. `out` may be the same buffer as `in`, or a longer
  /// one: its beginning is written. Costs: see algo/shm/all_to_all.hpp and algo/message/pairwise.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_to_all_args> && same_element<In, Out>
  started<all_to_all_args> all_to_all(In&& in, Out&& out, call_options how = {},
                                      std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    this->check_room("all_to_all", "in", from.size(), "out", std::ranges::size(out));
    this->check_equal_blocks("all_to_all", from.size());
    const auto to = span_of(out).first(from.size());
    if (from.data() != to.data()) this->check_disjoint("all_to_all", from, to);
    return move<all_to_all_args>(from, to, how, where, [&](auto& a) {
      a.in_blocks = a.out_blocks = layout::of_equal(from.size() / this->ranks());
    });
  }
  /// Exchanges blocks of any lengths between all ranks: `in_blocks` lays out the blocks that this rank sends to each
  /// rank, `out_blocks` those that it receives from each. The buffers may be longer than their blocks, and must not
  /// overlap. Two ranks that give different counts for one block cause errc::mismatch.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_to_all_v_args> && same_element<In, Out>
  started<all_to_all_v_args> all_to_all_v(In&& in, layout in_blocks, Out&& out, layout out_blocks,
                                          call_options how = {},
                                          std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    const auto to = span_of(out);
    this->check_blocks("all_to_all_v", in_blocks, from.size(), access::read);
    this->check_blocks("all_to_all_v", out_blocks, to.size(), access::write);
    this->check_equal("all_to_all_v", "what this rank has for itself", in_blocks.size(this->me()),
                      "what it gets from itself", out_blocks.size(this->me()));
    this->check_disjoint("all_to_all_v", from, to, "pass separate ones: blocks of any lengths have no form in place");
    return move<all_to_all_v_args>(from, to, how, where, [&](auto& a) {
      a.in_blocks = in_blocks;
      a.out_blocks = out_blocks;
    });
  }

  // Deleted overloads for calls that are wrong, with the reason in the compiler's message: see argument_error.
  template <class... Given, argument_error Why = error_of_call<use::write, Given...>()>
    requires(Why != argument_error::none)
  void gather(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::write, Given...>()>
    requires(Why != argument_error::none)
  void scatter(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::write, Given...>()>
    requires(Why != argument_error::none)
  void all_to_all(Given&&...) = delete;
  template <class In, class Out, class... Rest, argument_error Why = error_of_call<use::write, In, Out>()>
    requires(Why != argument_error::none)
  void all_gather_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class In, class Out, class... Rest, argument_error Why = error_of_call<use::write, In, Out>()>
    requires(Why != argument_error::none)
  void gather_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class In, class Out, class... Rest, argument_error Why = error_of_call<use::write, In, Out>()>
    requires(Why != argument_error::none)
  void scatter_v(In&&, Out&&, layout, Rest&&...) = delete;
  template <class In, class Out, class... Rest, argument_error Why = error_of_call<use::write, In, Out>()>
    requires(Why != argument_error::none)
  void all_to_all_v(In&&, layout, Out&&, layout, Rest&&...) = delete;

 private:
  /// Returns `in`; if it overlaps `out`, moves its elements to this rank's block of `out` and returns that. Throws
  /// usage_error, and moves nothing, where start() would refuse the call.
  template <class T>
  std::span<const T> moved_to_own_block(std::span<const T> in, std::span<T> out, const layout& blocks,
                                        const call_options& how) const {
    const std::span<T> own = out.subspan(blocks.begin(this->me()), in.size());
    if (in.data() == own.data() || !overlap(in.data(), in.size_bytes(), out.data(), out.size_bytes())) return in;
    this->core().engine().check_place(all_gather_v_args::name);
    static_cast<void>(this->template resolved<all_gather_v_args>(how, shape_of<T>(out.size())));
    std::memmove(own.data(), in.data(), in.size_bytes());
    return own;
  }
  template <class T>
  void own_block(const char* call, access of, std::span<const T> in, std::span<T> out, const layout& blocks) const {
    this->check_own_block(call, of, in, out, blocks.begin(this->me()), blocks.size(this->me()));
  }

  template <class Args, class T, class Rest>
  started<Args> move(std::span<const T> in, std::span<T> out, const call_options& how,
                     const std::source_location& where, Rest rest) {
    Args a;  // not `{}`, which would clear all of it first
    a.in = erase_type(in);
    a.out = erase_type(out);
    rest(a);
    return this->start(shape_of<T>((std::max)(in.size(), out.size())), how, where, a);
  }
};

}  // namespace tutti::detail
