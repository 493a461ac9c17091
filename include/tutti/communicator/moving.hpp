#pragma once
#include <cstddef>
#include <cstdint>
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

namespace tutti::detail {

/// Calls of a communicator that move elements between all ranks.
template <class Base>
class moving_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;
  template <class Args>
  using started = typename Base::template started<Args>;

  /// Waits for all ranks: ends when every rank has called it. Collective. Costs one round in shared memory, else
  /// ceil(log2 n) empty messages.
  started<barrier_args> barrier(call_options how = {}, std::source_location where = std::source_location::current())
    requires supports<backend_type, barrier_args>
  {
    return this->start({}, how, where, barrier_args{});
  }

  /// Copies the root's `data` to every rank. Collective; count and root must be equal on all ranks. Costs: see
  /// algo/shm/broadcast.hpp, algo/message/tree.hpp, algo/message/chain_broadcast.hpp and algo/hierarchical/tree.hpp.
  template <writable_elements R>
    requires supports<backend_type, broadcast_args>
  started<broadcast_args> broadcast(R&& data, int root, call_options how = {},
                                    std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<R>;
    this->check_rank("broadcast", "root", root);
    const auto s = span_of(data);
    return this->start(shape_of<T>(s.size()), how, where, broadcast_args{erase_type(std::span<T>{s}), root});
  }

  /// Broadcasts one number or small struct; the handle's result is the root's value.
  template <value T>
    requires supports<backend_type, broadcast_args> && Base::inline_path
  basic_op<T> broadcast(T value, int root, call_options how = {},
                        std::source_location where = std::source_location::current()) {
    this->check_rank("broadcast", "root", root);
    return basic_op<T>{this->launch(shape_of<T>(1), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      return broadcast_args{erase_type(std::span<T>{reinterpret_cast<T*>(s.value), 1}), root};
    })};
  }

  /// Broadcasts the root's string, of any length. Other ranks' strings are resized and overwritten.
  op broadcast(std::string& text, int root, call_options how = {},
               std::source_location where = std::source_location::current())
    requires supports<backend_type, broadcast_sized_args> && Base::inline_path
  {
    this->check_rank("broadcast", "root", root);
    constexpr auto resize = [](void* container, std::uint64_t bytes) noexcept -> std::byte* {
      auto& s = *static_cast<std::string*>(container);
      try {
        s.resize(bytes);
      } catch (...) {
        return nullptr;
      }
      return reinterpret_cast<std::byte*>(s.data());
    };
    return this->start(
        {text.size()}, how, where,
        broadcast_sized_args{&text, resize, reinterpret_cast<std::byte*>(text.data()), text.size(), root});
  }

  /// Gathers equal blocks on all ranks: block r of every rank's `out` becomes rank r's `in`, which may be this rank's
  /// block of `out`. Collective; the count of `in` must be equal on all ranks. A longer `out` is fine: its first n
  /// blocks are written. Costs: see algo/shm/all_gather.hpp, algo/message/ring.hpp, algo/message/bruck.hpp and
  /// algo/hierarchical/blocks.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_gather_args> && same_element<In, Out>
  started<all_gather_args> all_gather(In&& in, Out&& out, call_options how = {},
                                      std::source_location where = std::source_location::current()) {
    const auto from = read_only(in);
    const std::size_t all = this->for_all_ranks(from.size());
    this->check_room("all_gather", "in x world size", all, "out", std::ranges::size(out));
    const auto to = span_of(out).first(all);
    this->check_own_block("all_gather", access::read, from, to, from.size() * this->me(), from.size());
    all_gather_args a{erase_type(from), erase_type(to)};
    return this->start(shape_of(a.out), how, where, a);
  }

  // Deleted overloads for calls that are wrong, with the reason in the compiler's message: see argument_error.
  template <class... Given, argument_error Why = error_of_value_or_call<use::write, Base::by_value, Given...>()>
    requires(Why != argument_error::none)
  void broadcast(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::write, Given...>()>
    requires(Why != argument_error::none)
  void all_gather(Given&&...) = delete;
};

}  // namespace tutti::detail
