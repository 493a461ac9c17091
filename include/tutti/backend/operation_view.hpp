#pragma once
#include <concepts>
#include <cstddef>

#include <tutti/async/op_state.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/external_segments.hpp>

namespace tutti {

/// The buffers of one side of an operation: those that a rank contributes, or those that it receives. Does not own.
struct operation_buffers {
  const_buffer whole{};
  buffer_list list{};            ///< of all_reduce_coalesced
  external_segments external{};  ///< ranges that are not in `whole` yet

  /// Calls `f(const_buffer)` for each buffer with elements, in their order.
  template <std::invocable<const_buffer> F>
  void for_each(F f) const {
    const auto pass = [&](const const_buffer& b) {
      if (b.count != 0) f(b);
    };
    std::size_t at = 0;  // elements before it have been passed
    for (const external_segment* p = external.parts; p != external.end(); ++p) {
      pass(part(at, p->first - at));
      pass({p->data, p->count, whole.element_bytes, whole.type, whole.where});
      at = p->first + p->count;
    }
    pass(part(at, whole.count - at));
    for (std::size_t i = 0; i < list.size; ++i) {
      const auto bytes = list[i];
      pass({bytes.data(), bytes.size() / list.element_bytes, list.element_bytes, list.type, space::host});
    }
  }

 private:
  [[nodiscard]] const_buffer part(std::size_t begin, std::size_t count) const noexcept {
    const_buffer b = whole;
    b.count = count;
    if (b.data) b.data = static_cast<const std::byte*>(b.data) + begin * b.element_bytes;
    return b;
  }
};

/// An operation, as a hook sees it; valid during the call of the hook.
struct operation_view {
  const op_info& info;  ///< call, its site, elements, reduction, root, peer; `sequence` of a message is 0 in before()
  int rank;             ///< this process's number in the world
  /// The buffers that this rank contributes, in before() only. None for barrier, recv, a broadcast from another rank,
  /// and one of a container, whose size only the root knows.
  operation_buffers operands{};
  /// The buffers that this rank receives; written when after() runs. None for barrier, send, and a broadcast of a
  /// container. If the caller gave offsets, also the elements between the blocks.
  operation_buffers results{};
};

namespace detail {

template <class Void>
constexpr const_buffer read_only_view(const basic_buffer<Void>& b) noexcept {
  return {b.data, b.count, b.element_bytes, b.type, b.where};
}

/// Returns the buffers that rank `me` of a group contributes to a call.
template <class Args>
operation_buffers operands_of(const Args& a, int me) noexcept {
  operation_buffers b;
  if constexpr (requires { a.in.data; }) b.whole = read_only_view(a.in);
  if constexpr (requires { a.external; }) b.external = a.external;
  if constexpr (std::same_as<Args, all_reduce_coalesced_args>) b.list = a.data;
  if constexpr (std::same_as<Args, send_args>) b.whole = a.data;
  if constexpr (std::same_as<Args, broadcast_args>)
    if (a.root == me) b.whole = read_only_view(a.data);
  return b;
}
/// Returns the buffers that rank `me` of a group receives.
template <class Args>
operation_buffers results_of(const Args& a, int me) noexcept {
  operation_buffers b;
  if constexpr (requires { a.out.data; }) b.whole = read_only_view(a.out);
  if constexpr (std::same_as<Args, exclusive_scan_args>)
    if (me == 0) b.whole = {};  // not written
  if constexpr (std::same_as<Args, all_reduce_coalesced_args>) b.list = a.data;
  if constexpr (std::same_as<Args, recv_args> || std::same_as<Args, recv_any_args> ||
                std::same_as<Args, broadcast_args>)
    b.whole = read_only_view(a.data);
  return b;
}

}  // namespace detail
}  // namespace tutti
