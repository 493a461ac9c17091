#pragma once
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <tutti/core/log.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/tcp/control_message.hpp>
#include <tutti/transport/tcp/link.hpp>

namespace tutti::detail {

/// Returns the goodbye of a rank that has called `calls` collectives in its world, whose hash is `hash`; 0 if they need
/// not be compared.
[[nodiscard]] inline control_message goodbye_after(std::uint64_t calls, std::uint64_t hash) noexcept {
  return {control_message::kind::bye, {errc::ok, 0, static_cast<std::int32_t>(calls & 0x7fffffff), hash}};
}

/// Logs a difference between the collectives that `self` has called, which its goodbye `mine` tells, and those of the
/// peers that have said goodbye by now. A peer that has called more or fewer is not compared: it may have failed.
inline void log_difference(const control_message& mine, std::span<const tcp_link> links, const roster& all,
                           int self) noexcept try {
  if (mine.why.detail == 0) return;
  int equal = 0, different = 0, first = -1;
  for (const rank_info& p : all) {
    const status& theirs = links[static_cast<std::size_t>(p.rank)].called;
    if (theirs.detail == 0 || theirs.peer != mine.why.peer) continue;
    if (theirs.detail == mine.why.detail) {
      ++equal;
      continue;
    }
    if (different++ == 0) first = p.rank;
  }
  if (different == 0) return;
  log(log_level::error,
      "rank " + std::to_string(self) + " has ended its world without close(): it and " +
          describe(all[static_cast<std::size_t>(first)]) + " have called " + std::to_string(mine.why.peer) +
          " collectives, of which at least one is not the same: another collective, root, reduction, number or type "
          "of elements (of the ranks that had ended by then, " +
          std::to_string(equal) + " called the same as rank " + std::to_string(self) + ", and " +
          std::to_string(different) + " did not); all ranks must issue the same operations in the same order");
} catch (const std::exception&) {  // out of memory
}

}  // namespace tutti::detail
