#pragma once
#include <tutti/algo/message/halving_doubling.hpp>
#include <tutti/algo/message/pairwise_reduce.hpp>
#include <tutti/algo/message/recursive_doubling.hpp>
#include <tutti/algo/message/ring.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/options.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Returns the all_reduce over messages that `via` names.
template <message_link L>
routine run_messages(L link, const all_reduce_args& a, algorithm via) {
  if (via == algorithm::halving_doubling) return halving_doubling_all_reduce(link, a);
  if (via == algorithm::pairwise) return pairwise_all_reduce(link, a);
  return via == algorithm::ring ? ring_all_reduce(link, a) : recursive_doubling_all_reduce(link, a);
}

}  // namespace tutti::algo
