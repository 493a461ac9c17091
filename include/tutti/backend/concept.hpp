#pragma once
#include <concepts>

#include <tutti/async/op_state.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/status.hpp>

namespace tutti {

/// A backend, which starts collectives: natively, as NCCL does, or as composed<Transport>. It is an overload set: it
/// supports the collectives for which it has a `start`. All members are called under the engine's lock.
template <class B>
concept backend = requires(B& b, const barrier_args& a, op_state& s, status why) {
  { b.rank() } noexcept -> std::same_as<int>;
  { b.size() } noexcept -> std::same_as<int>;
  { b.start(a, s) } noexcept;
  { b.abort(why) } noexcept;
  { b.failure() } noexcept -> std::same_as<status>;
  { B::where } -> std::convertible_to<space>;
};

/// A backend that supports the collective of `Args`.
template <class B, class Args>
concept supports = backend<B> && requires(B& b, const Args& a, op_state& s) {
  { b.start(a, s) } noexcept;
};

}  // namespace tutti
