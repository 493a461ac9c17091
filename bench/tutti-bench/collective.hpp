#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// The placements for which a collective has a right result; the table shows N/A for the other one, as nccl-tests does.
enum class placements : std::uint8_t { both, in_place, out_of_place };

/// The properties of a collective that determine its rows in nccl-tests' table.
struct collective {
  std::string_view name;
  bool reduces = false, rooted = false;
  bool cut = false;  ///< one of its buffers has a block for each rank; `count` is that of a block
  placements where = placements::both;

  [[nodiscard]] bool uneven() const noexcept { return name.ends_with("_v"); }
  /// Returns the name without the "_v" of blocks with different lengths.
  [[nodiscard]] std::string_view kind() const noexcept { return name.substr(0, name.size() - (uneven() ? 2 : 0)); }

  /// Returns nccl-tests' factor from algorithm bandwidth to bus bandwidth.
  [[nodiscard]] double bus_factor(int ranks) const noexcept {
    const double others = static_cast<double>(ranks - 1) / ranks;
    return name.starts_with("all_reduce") ? 2 * others : cut ? others : 1.0;
  }
  /// Returns the elements of the larger buffer for a size, as in nccl-tests: if there are blocks, each is a multiple of
  /// 16 bytes.
  [[nodiscard]] std::size_t elements(std::size_t bytes, std::size_t element_bytes, std::size_t ranks) const noexcept {
    if (!cut) return bytes / element_bytes;
    const std::size_t unit = 16 / element_bytes;
    return bytes / element_bytes / ranks / unit * unit * ranks;
  }
  /// Returns the count for nccl-tests' table: elements of a rank's block, on average, if there are blocks.
  [[nodiscard]] std::size_t count(std::size_t all, std::size_t ranks) const noexcept { return cut ? all / ranks : all; }
};

inline constexpr std::array collectives{
    collective{.name = "all_reduce", .reduces = true},
    collective{.name = "broadcast", .rooted = true, .where = placements::in_place},
    collective{.name = "barrier", .where = placements::in_place},
    collective{.name = "reduce", .reduces = true, .rooted = true},
    collective{.name = "all_gather", .cut = true},
    collective{.name = "reduce_scatter", .reduces = true, .cut = true},
    collective{.name = "gather", .rooted = true, .cut = true},
    collective{.name = "scatter", .rooted = true, .cut = true},
    collective{.name = "all_to_all", .cut = true, .where = placements::out_of_place},
    collective{.name = "scan", .reduces = true},
    collective{.name = "exclusive_scan", .reduces = true},
    collective{.name = "all_reduce_coalesced", .reduces = true, .where = placements::in_place},
    collective{.name = "all_gather_v", .cut = true},
    collective{.name = "reduce_scatter_v", .reduces = true, .cut = true},
    collective{.name = "gather_v", .rooted = true, .cut = true},
    collective{.name = "scatter_v", .rooted = true, .cut = true},
    collective{.name = "all_to_all_v", .cut = true, .where = placements::out_of_place},
    collective{.name = "sendrecv", .where = placements::out_of_place},
};
inline const collective& collective_of(std::string_view of) {
  for (const collective& c : collectives)
    if (c.name == of) return c;
  throw std::runtime_error("no such collective: " + std::string(of));
}
inline std::vector<std::string> collective_names() {
  std::vector<std::string> all;
  for (const collective& c : collectives) all.emplace_back(c.name);
  return all;
}

}  // namespace bench
