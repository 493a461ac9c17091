#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/status.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/record.hpp>

namespace tutti::watch {

/// The copy of a recording at one moment: what one rank has called, in the order of issue. Times are nanoseconds since
/// 1970 by the clock of its machine, 0 if not reached.
struct flight {
  struct group {
    std::uint16_t context = 0;  ///< groups without common ranks may have the same one
    std::vector<int> ranks;     ///< world ranks, by rank of the group
  };
  struct site {
    std::string file, function;
    std::uint32_t line = 0;
  };
  struct entry {
    operation what;
    std::int64_t issued = 0, started = 0, ended = 0;
  };

  int rank = 0, size = 1;
  std::uint32_t number = 1;  ///< of the world, among those of its process
  std::uint64_t world = 0;   ///< equal on all ranks of a world, and on no others
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< of the process
  std::string host, boot, job;
  std::string reason;       ///< of the dump
  std::int64_t joined = 0;  ///< time at which the rank has joined the world
  std::int64_t taken = 0;   ///< time of the copy; of a machine whose clock is ahead, that of the rank's last tick
  std::int64_t left = 0;    ///< time at which the rank left the world
  std::int64_t failed = 0;  ///< time at which the world failed
  errc failure = errc::ok;
  int failed_peer = -1;
  std::vector<group> groups;  ///< the world first
  std::vector<site> sites;    ///< by operation::site
  std::vector<entry> entries;

  [[nodiscard]] const group* group_of(const operation& o) const noexcept {
    for (const group& g : groups)
      if (g.context == o.context) return &g;
    return nullptr;
  }
  /// Returns the root or peer of an operation as a rank of the world, or as numbered in its group if that is not known;
  /// -1: none.
  [[nodiscard]] int other_of(const operation& o) const noexcept {
    const group* const g = group_of(o);
    const auto i = static_cast<std::size_t>(o.other);
    return o.other >= 0 && g && i < g->ranks.size() ? g->ranks[i] : o.other;
  }
};

/// Returns a name for the boot of this machine's kernel and for this process's numbering of processes: where they are
/// equal, so are the clocks, and a pid means the same process.
TUTTI_DECL std::string kernel_and_pids();

/// Copies a recording that is read at `now`, readings of this machine's clocks; those of the recording are used if it
/// comes from another boot of a machine. Any thread, while the recorder records. May throw std::bad_alloc.
TUTTI_DECL flight copy_of(const recording& from, const os::clock_reading& now, bool same_boot);

/// Reads a file as a recording; null if it cannot be read, or is none of this version. Its rank may record meanwhile:
/// records that it replaces are left out.
TUTTI_DECL std::unique_ptr<recording> read_recording(const std::string& path);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/flight.hpp>
#endif
