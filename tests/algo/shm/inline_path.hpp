#pragma once
#include <concepts>

#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/inline_path.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>

namespace links {

inline constexpr int not_at_once = -1;

template <class Link>
tutti::routine ended(Link) {
  co_return;
}

/// A call as a backend makes it: at once, within so many looks, or what is left of it.
template <class Rank, class Args>
tutti::algo::progress call(Rank& me, const Args& a, int spin_limit) {
  using tutti::algo::progress;
  progress so_far = progress::nothing;
  me.run([&](auto link) {
    tutti::algo::shm_group& shm = me.shm_group();
    if (spin_limit != not_at_once && tutti::algo::may_begin(link.link(), shm, a, me.number(), me.size()) &&
        shm.is_clear(spin_limit))
      so_far = tutti::algo::begin(link, shm, a, spin_limit);
    if (so_far == progress::all) return ended(link);
    if constexpr (std::same_as<Args, tutti::all_reduce_args>)
      if (!tutti::algo::is_small(a, me.size())) return tutti::algo::direct_all_reduce(link, shm, a, so_far);
    return tutti::algo::direct_small(link, shm, a, so_far);
  });
  return so_far;
}

}  // namespace links
