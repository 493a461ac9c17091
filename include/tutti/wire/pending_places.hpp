#pragma once
#include <tutti/config.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

/// Limits on connections that have not proved themselves yet: their number, and the choice of the one that is closed if
/// more come.
namespace tutti::wire {

/// Returns the number of pending connections for a listener at which `ranks` ranks may connect at once: enough that a
/// peer has time to answer while a flood of others connects, but at most an eighth of the descriptors of the process
/// unless the ranks need more.
inline std::size_t pending_places(std::size_t ranks) noexcept {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const std::size_t fair = std::clamp<std::size_t>(known ? limit.rlim_cur / 8 : 1024, 64, 1024);
  return (std::max)(fair, 4 * ranks);
}
/// Returns the number for one of many listeners, whose pending connections take memory.
inline int few_pending_places() noexcept { return static_cast<int>(std::min<std::size_t>(pending_places(0), 256)); }

/// Returns the source address of most of the pending connections that `counts(connection)`, if it has at least an
/// eighth of them: its oldest one makes room for others, so that a flood closes its own connections and no other's.
/// Uses the counters of Misra and Gries, which find every such source in one pass.
template <class Connections, class Counts>
std::optional<std::uint64_t> busiest_source(const Connections& all, Counts&& counts) noexcept {
  struct counter {
    std::uint64_t source = 0;
    std::size_t count = 0;
  };
  std::array<counter, 8> counters{};
  std::size_t n = 0;
  for (const auto& s : all) {
    if (!counts(s)) continue;
    ++n;
    const auto own = std::find_if(counters.begin(), counters.end(),
                                  [&](const counter& c) { return c.count != 0 && c.source == s.source; });
    const auto free = std::find_if(counters.begin(), counters.end(), [](const counter& c) { return c.count == 0; });
    if (own != counters.end())
      ++own->count;
    else if (free != counters.end())
      *free = {s.source, 1};
    else
      for (counter& c : counters) --c.count;
  }
  const counter* most = nullptr;
  for (counter& c : counters) {
    if (c.count == 0) continue;
    c.count = 0;
    for (const auto& s : all) c.count += counts(s) && s.source == c.source;
    if (8 * c.count >= n && (most == nullptr || c.count > most->count)) most = &c;
  }
  return most == nullptr ? std::nullopt : std::optional{most->source};
}
template <class Connections>
std::optional<std::uint64_t> busiest_source(const Connections& all) noexcept {
  return busiest_source(all, [](const auto&) { return true; });
}

}  // namespace tutti::wire
