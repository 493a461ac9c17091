#pragma once
#include <cstddef>

#include <tutti/algo/shm/group/group.hpp>
#include <tutti/config.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti::algo::detail {

/// Folds `count` elements of all of `shm.room().operands` into all of `shm.room().results`, and stores as `how` says.
/// Lines of several results are prefetched for writing on a Zen 5 alone, which gains a third between distant cores; a
/// Zen 4 loses as much.
inline void fold_chunk(shm_group& shm, std::size_t count, stores how, const reduction& with) {
  static const bool prefetch_pays = tutti::detail::cpu_is_zen5();
  const auto& [operands, results, in, out] = shm.room();
  if (results.size() > 1 && !prefetch_pays) how = stores::unclaimed;
  with.fold_all_to(operands.data(), static_cast<int>(operands.size()), results.data(), static_cast<int>(results.size()),
                   count, how, with.context.data());
}

}  // namespace tutti::algo::detail
