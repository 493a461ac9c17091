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

/// The first rank that differs from rank 0, -1 if none does, and that rank's number.
struct outlier {
  int rank = -1;
  std::uint64_t id = 0;
};

/// A comparison of one number of every rank, such as a hash, that is expected to be equal on all. begin() exchanges the
/// numbers and returns an operation to wait for; this object must outlive it. Then odd() returns the same result on all
/// ranks. Each rank sends 8 bytes.
class comparison {
 public:
  template <class Comm>
  [[nodiscard]] op begin(Comm& world, std::uint64_t mine, const call_options& how = {},
                         const std::source_location& where = std::source_location::current()) {
    const auto ranks = static_cast<std::size_t>(world.size());
    ids_.assign(ranks + 1, mine);  // the last is this rank's
    return world.all_gather(std::span{ids_}.last(1), std::span{ids_}.first(ranks), how, where);
  }
  [[nodiscard]] outlier odd() const noexcept {
    return find([&](std::uint64_t id) { return id != ids_[0]; });
  }
  /// Returns the first rank for whose number `is` returns true.
  template <class Is>
  [[nodiscard]] outlier find(Is is) const noexcept {
    const auto at = std::find_if(ids_.begin(), ids_.end() - 1, is);
    return at == ids_.end() - 1 ? outlier{} : outlier{static_cast<int>(at - ids_.begin()), *at};
  }

 private:
  std::vector<std::uint64_t> ids_;
};

}  // namespace tutti::grad::detail
