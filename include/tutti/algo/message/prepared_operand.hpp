#pragma once
#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Runs a collective over a prepared copy of its input, for a reduction that prepares operands where the input must not
/// be written. `way(link, args)` is the collective's routine. Costs one pass over the input and a buffer of its size.
template <message_link L, class Args, class Way>
routine over_prepared_operand(L link, Args a, Way way) {
  scratch operand(link, a.in.bytes());
  if (!operand) co_await link.refuse({errc::out_of_resources});
  a.op.prepare(a.in.data, operand.data(), a.in.count, a.op.context.data());
  a.in.data = operand.data();
  a.op.prepare = nullptr;
  co_await way(link, a);
}

/// Prepares the input into the output, which becomes the input, too. For collectives whose input and output have one
/// size.
template <class Args>
Args prepare_into_output(Args a) {
  a.op.prepare(a.in.data, a.out.data, a.out.count, a.op.context.data());
  a.in.data = a.out.data;
  a.op.prepare = nullptr;
  return a;
}

/// Prepares all buffers of a list in place.
inline all_reduce_coalesced_args prepare_in_place(all_reduce_coalesced_args a) {
  for (std::size_t i = 0; i < a.data.size; ++i) {
    const auto chunk = a.data[i];
    a.op.prepare(chunk.data(), chunk.data(), chunk.size() / a.data.element_bytes, a.op.context.data());
  }
  a.op.prepare = nullptr;
  return a;
}

}  // namespace tutti::algo
