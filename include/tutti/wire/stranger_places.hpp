#pragma once
#include <tutti/config.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

/// The places of those who have connected and proven nothing yet: how many there are, and who loses his where more
/// come.
namespace tutti::wire {

/// For a listener at which so many ranks may come at once: so many places that one who answers has time to do so in a
/// flood of others, but no more than an eighth of the descriptors that the process may have beyond what ranks need.
inline std::size_t stranger_places(std::size_t ranks) noexcept {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const std::size_t fair = std::clamp<std::size_t>(known ? limit.rlim_cur / 8 : 1024, 64, 1024);
  return (std::max)(fair, 4 * ranks);
}
/// The same for one of many listeners, whose places are memory.
inline int few_stranger_places() noexcept { return static_cast<int>(std::min<std::size_t>(stranger_places(0), 256)); }

/// The source, an address, from which most of them come, if an eighth does: its oldest makes room for others, so that a
/// flood drives out its own, and nobody from elsewhere. By the counters of Misra and Gries, which find every such
/// source in one pass.
template <class Strangers>
std::optional<std::uint64_t> crowded_source(const Strangers& all) noexcept {
  struct counter {
    std::uint64_t source = 0;
    std::size_t count = 0;
  };
  std::array<counter, 8> counters{};
  std::size_t n = 0;
  for (const auto& s : all) {
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
    for (const auto& s : all) c.count += s.source == c.source;
    if (8 * c.count >= n && (most == nullptr || c.count > most->count)) most = &c;
  }
  return most == nullptr ? std::nullopt : std::optional{most->source};
}

}  // namespace tutti::wire
