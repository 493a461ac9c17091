#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/options.hpp>

namespace tutti::grad::detail {

/// Which rank is the first that differs from rank 0, -1 if none does, and what it has.
struct odd_rank {
  int rank = -1;
  std::uint64_t id = 0;
};

/// A number of every rank, such as a hash, that all are to have alike. begin() sends it, and may be awaited or waited
/// for; then odd() says who differs, the same on all ranks. 8 bytes of each rank. Belongs to the operation until then.
class comparison {
 public:
  template <class Comm>
  [[nodiscard]] op begin(Comm& world, std::uint64_t mine, const issue& how = {},
                         const std::source_location& where = std::source_location::current()) {
    const auto ranks = static_cast<std::size_t>(world.size());
    ids_.assign(ranks + 1, mine);  // the last is this rank's
    return world.all_gather(std::span{ids_}.last(1), std::span{ids_}.first(ranks), how, where);
  }
  [[nodiscard]] odd_rank odd() const noexcept {
    return find([&](std::uint64_t id) { return id != ids_[0]; });
  }
  /// The first whose number `is` so.
  template <class Is>
  [[nodiscard]] odd_rank find(Is is) const noexcept {
    const auto at = std::find_if(ids_.begin(), ids_.end() - 1, is);
    return at == ids_.end() - 1 ? odd_rank{} : odd_rank{static_cast<int>(at - ids_.begin()), *at};
  }

 private:
  std::vector<std::uint64_t> ids_;
};

}  // namespace tutti::grad::detail
