#pragma once
#include <tutti/config.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/external_segments.hpp>

namespace tutti::algo {

/// Copies all external segments to their places in `into`.
TUTTI_DECL void bring_all(const external_segments& d, const buffer& into);

/// Does the same for the arguments of an all_reduce, and returns them without external segments.
inline all_reduce_args bring_all(all_reduce_args a) {
  bring_all(a.external, a.out);
  a.external = {};
  return a;
}

}  // namespace tutti::algo

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/algo/bring_all.hpp>
#endif
