#pragma once
#include <concepts>

#include <tutti/async/op_state.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/status.hpp>

namespace tutti {

/// Starts collectives: natively, as NCCL and MPI do, or as composed<Transport>. A backend is an overload set: it
/// supports the collectives for which it has a `start`. Everything is called under the engine's lock.
template <class B>
concept backend = requires(B& b, const barrier_args& a, op_state& s, status why) {
  { b.rank() } noexcept -> std::same_as<int>;
  { b.size() } noexcept -> std::same_as<int>;
  { b.start(a, s) } noexcept;
  { b.abort(why) } noexcept;
  { b.failure() } noexcept -> std::same_as<status>;
  { B::where } -> std::convertible_to<space>;
};

/// This backend can do this collective.
template <class B, class Args>
concept supports = backend<B> && requires(B& b, const Args& a, op_state& s) {
  { b.start(a, s) } noexcept;
};

}  // namespace tutti
