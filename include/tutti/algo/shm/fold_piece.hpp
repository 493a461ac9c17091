#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/group/group.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/reduction.hpp>

namespace tutti::algo::detail {

/// Folds `count` elements of all of `b.room().operands` into all of `b.room().results`. They are a chunk of a fold of
/// `bytes` bytes. Stores as `claiming` says, or without write prefetch if this rank has measured that to be faster.
inline void fold_piece(shm_group& b, std::size_t bytes, std::size_t count, std::size_t element, stores claiming,
                       const reduction& with) {
  const auto& [operands, results, in, out] = b.room();
  const auto fold = [&](stores how) {
    with.fold_all_to(operands.data(), static_cast<int>(operands.size()), results.data(),
                     static_cast<int>(results.size()), count, how, with.context.data());
  };
  if (results.size() < 2 || count * element < claim_choice::worth_timing) return fold(claiming);
  const deadline begin = clock::now();
  const claim_choice::kind kind{reinterpret_cast<std::uintptr_t>(with.fold_all_to), bytes};
  fold(b.claims().next(kind, claiming));
  b.claims().took(kind, count * element, nanoseconds_since(begin));
}

}  // namespace tutti::algo::detail
