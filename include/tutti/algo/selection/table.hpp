#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tutti/algo/selection/problem.hpp>
#include <tutti/algo/selection/supported.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

/// Table of the algorithms that collectives take, as measured on a machine (tutti-bench --tune); must be equal on all
/// ranks. The first rule that fits a call decides; a call without a rule is decided by algo/selection/choose.hpp.
class tuning {
 public:
  static constexpr std::size_t most_rules = 128;
  static constexpr int any_ranks = (std::numeric_limits<int>::max)();
  static constexpr std::size_t any_bytes = (std::numeric_limits<std::size_t>::max)();

  struct rule {
    std::uint32_t collective = 0;  ///< id_of() the collective's name
    connectivity links = connectivity::messages;
    algorithm via = algorithm::automatic;
    int ranks = any_ranks;          ///< largest world size of the rule
    std::size_t bytes = any_bytes;  ///< largest message of the rule

    friend bool operator==(const rule&, const rule&) = default;
  };

  static constexpr std::uint32_t id_of(std::string_view name) noexcept {
    std::uint32_t h = 2166136261;  // FNV-1a
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619;
    return h;
  }

  /// Appends a rule; returns false if the table is full.
  constexpr bool add(const rule& r) noexcept {
    if (count_ == most_rules) return false;
    rules_[count_++] = r;
    return true;
  }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return count_; }
  [[nodiscard]] constexpr const rule& operator[](std::size_t i) const noexcept { return rules_[i]; }

  /// Returns the algorithm of the first rule that fits the situation and can run in it, else `otherwise`.
  template <class Args>
  [[nodiscard]] constexpr algorithm choose(const problem& s, algorithm otherwise) const noexcept {
    constexpr std::uint32_t id = id_of(Args::name);
    for (std::size_t i = 0; i < count_; ++i) {
      const rule& r = rules_[i];
      if (r.collective == id && r.links == s.links && s.world_size <= r.ranks && s.bytes <= r.bytes &&
          is_supported<Args>(r.via, s))
        return r.via;
    }
    return otherwise;
  }

  /// Returns a hash for the comparison of tables between ranks; 0 for an empty table.
  [[nodiscard]] constexpr std::uint64_t hash() const noexcept {
    std::uint64_t h = 0;
    const auto mix = [&h](std::uint64_t word) { h = tutti::detail::mix(h, word); };
    for (std::size_t i = 0; i < count_; ++i) {
      const rule& r = rules_[i];
      mix(i + 1);
      mix(r.collective | std::uint64_t{static_cast<std::uint8_t>(r.links)} << 32 |
          std::uint64_t{static_cast<std::uint8_t>(r.via)} << 40);
      mix(static_cast<std::uint64_t>(r.ranks));
      mix(r.bytes);
    }
    return h;
  }

 private:
  std::array<rule, most_rules> rules_{};
  std::size_t count_ = 0;
};

/// List of the collectives that a table may have rules for.
template <class... Args>
struct collectives {
  /// Returns true if a collective of this name has this algorithm.
  static constexpr bool has(std::string_view name, algorithm via) noexcept {
    return ((name == Args::name && via != algorithm::automatic && has_algorithm<Args>(via)) || ...);
  }
  static constexpr bool has(std::string_view name) noexcept { return ((name == Args::name) || ...); }
};
using tunable =
    collectives<all_reduce_args, broadcast_args, reduce_scatter_args, all_gather_args, all_reduce_coalesced_args,
                reduce_args, scan_args, exclusive_scan_args, reduce_scatter_v_args, all_gather_v_args, gather_args,
                gather_v_args, scatter_args, scatter_v_args, all_to_all_args, all_to_all_v_args>;

}  // namespace tutti::algo
