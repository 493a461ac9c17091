#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/host.hpp>
#include <tutti/watch/flight.hpp>

namespace tutti::watch {

TUTTI_DECL std::string kernel_and_pids() { return os::boot_id() + "/" + std::to_string(os::namespace_inode("pid")); }

TUTTI_DECL flight copy_of(const recording& from, const os::clock_reading& now, bool same_boot) {
  const recording_head& h = from.head;
  flight f;
  f.rank = h.rank;
  f.size = (std::max)(h.size, 1);
  f.number = h.number;
  f.world = h.world;
  f.pid = h.pid;
  f.start_time = h.start_time;
  f.host = text_of(h.host);
  f.boot = text_of(h.boot);
  f.job = text_of(h.job);
  f.failure = static_cast<errc>(h.failure.load(std::memory_order_relaxed));
  f.failed_peer = h.failed_peer.load(std::memory_order_relaxed);
  const os::clock_reading last = h.last.read();
  const os::tick_scale scale{h.first.read(), same_boot ? now : last};
  const auto wall = [&](std::uint64_t ticks) { return ticks == 0 ? 0 : scale.wall(ticks); };
  f.joined = h.first.read().wall;
  f.taken = same_boot ? now.wall : (std::max)(now.wall, last.wall);
  f.left = wall(h.left.load(std::memory_order_relaxed));
  f.failed = wall(h.failed.load(std::memory_order_relaxed));

  f.groups.emplace_back();
  for (int r = 0; r < f.size; ++r) f.groups.front().ranks.push_back(r);
  const std::size_t words = (std::min)(std::size_t{h.group_words.load(std::memory_order_acquire)}, from.groups.size());
  for (std::size_t i = 0; i + 2 <= words;) {
    flight::group g;
    g.context = static_cast<std::uint16_t>(from.groups[i]);
    const std::size_t end = i + 2 + from.groups[i + 1];
    if (end > words) break;
    for (i += 2; i < end; ++i)
      if (from.groups[i] < static_cast<std::uint32_t>(f.size)) g.ranks.push_back(static_cast<int>(from.groups[i]));
    f.groups.push_back(std::move(g));
  }
  const std::size_t sites = (std::min)(std::size_t{h.sites.load(std::memory_order_acquire)}, from.sites.size());
  f.sites.resize((std::max)(sites, std::size_t{1}));
  for (std::size_t i = 1; i < sites; ++i)
    f.sites[i] = {std::string(text_of(from.sites[i].file)), std::string(text_of(from.sites[i].function)),
                  from.sites[i].line};

  for (const record& r : from.records)
    if (operation o = r.read(); o.id != 0) {
      if (o.site >= sites) o.site = 0;
      if (o.state == progress::completed && o.ended == 0) o.started = o.ended = o.issued;
      f.entries.push_back({o, wall(o.issued), wall(o.started), wall(o.ended)});
    }
  // The groups of a program that makes very many are not all known.
  for (const flight::entry& e : f.entries)
    if (!f.group_of(e.what)) f.groups.push_back({e.what.context, {}});
  std::sort(f.entries.begin(), f.entries.end(), [](auto& a, auto& b) { return a.what.id < b.what.id; });
  return f;
}

namespace detail {

TUTTI_DECL bool read_at(int file, std::span<std::byte> to, std::size_t offset) noexcept {
  while (!to.empty()) {
    const ::ssize_t n = ::pread(file, to.data(), to.size(), static_cast<::off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace detail

TUTTI_DECL std::unique_ptr<recording> read_recording(const std::string& path) {
  const os::fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  auto r = std::make_unique<recording>();
  const auto bytes = std::as_writable_bytes(std::span{r.get(), 1});
  if (!file || !detail::read_at(file.native(), bytes, 0)) return nullptr;
  if (!r->head.is_recording()) return nullptr;
  // Ids only ascend, so a record with the same id now was not replaced while it was read.
  auto after = std::make_unique<decltype(r->records)>();
  const std::size_t records = sizeof(recording) - sizeof r->records;
  if (!detail::read_at(file.native(), std::as_writable_bytes(std::span{*after}), records)) return nullptr;
  for (std::size_t i = 0; i < after->size(); ++i)
    if ((*after)[i].id() != r->records[i].id()) r->records[i].clear();
  return r;
}

}  // namespace tutti::watch
