#pragma once
#include <cstdint>
#include <source_location>
#include <span>
#include <string>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/argument_error.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/error.hpp>

namespace tutti::detail {

/// Calls of a communicator between two of its ranks.
template <class Base>
class messaging_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;
  template <class Args>
  using started = typename Base::template started<Args>;

  /// Sends to one rank, which must receive with the same tag and count. Messages with one tag arrive in order. The
  /// operation ends when `data` may be changed again. Beyond 256 KiB, that is not before the receiver has called recv;
  /// for the first message between two ranks over TCP, not before the other rank has driven its engine, which connects
  /// them. A receiver keeps up to 64 MiB of shorter messages that it has not called recv for; then it holds the sender
  /// back, unless it waits for a message itself.
  template <elements R>
    requires supports<backend_type, send_args>
  started<send_args> send(R&& data, int peer, std::uint32_t tag = 0, call_options how = {},
                          std::source_location where = std::source_location::current()) {
    check_peer("send", peer);
    const auto s = read_only(data);
    return this->start(shape_of<std::ranges::range_value_t<R>>(s.size()), how, where,
                       send_args{erase_type(s), peer, tag});
  }

  /// Receives a message of `peer` with this tag. Another number of bytes is errc::mismatch and, like every failure,
  /// ends the world; element types are not compared.
  template <writable_elements R>
    requires supports<backend_type, recv_args>
  started<recv_args> recv(R&& data, int peer, std::uint32_t tag = 0, call_options how = {},
                          std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<R>;
    check_peer("recv", peer);
    const auto s = span_of(data);
    return this->start(shape_of<T>(s.size()), how, where, recv_args{erase_type(std::span<T>{s}), peer, tag});
  }

  /// Receives the first message with this tag that any rank sends or has sent; the handle's result is that rank.
  /// Messages of one rank and tag arrive in order. A message for which a recv() of its sender waits goes to that
  /// recv(). If messages of several ranks are there, the ranks take turns; while recv_any waits, no sender is held
  /// back. A different count is errc::mismatch and ends the world.
  template <writable_elements R>
    requires supports<backend_type, recv_any_args> && Base::inline_path
  basic_op<int> recv_any(R&& data, std::uint32_t tag = 0, call_options how = {},
                         std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<R>;
    if (this->size() == 1) this->who("recv_any").refuse("this communicator has no other rank to receive from");
    const auto s = span_of(data);
    return basic_op<int>{this->launch(shape_of<T>(s.size()), how, where,
                                      [&](op_state&) { return recv_any_args{erase_type(std::span<T>{s}), tag}; })};
  }

  // Deleted overloads for calls that are wrong, with the reason in the compiler's message: see argument_error.
  template <class... Given, argument_error Why = error_of_call<use::read, Given...>()>
    requires(Why != argument_error::none)
  void send(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::write, Given...>()>
    requires(Why != argument_error::none)
  void recv(Given&&...) = delete;
  template <class... Given, argument_error Why = error_of_call<use::write, Given...>()>
    requires(Why != argument_error::none)
  void recv_any(Given&&...) = delete;

 private:
  void check_peer(const char* call, int r) const {
    this->check_rank(call, "peer", r);
    if (r == this->rank()) this->who(call).refuse("a rank cannot exchange messages with itself");
  }
};

}  // namespace tutti::detail
