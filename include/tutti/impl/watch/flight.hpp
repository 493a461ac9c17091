#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  f.taken = now.wall;
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
    for (i += 2; i < end; ++i) g.ranks.push_back(static_cast<int>(from.groups[i]));
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
  std::ranges::sort(f.entries, {}, [](const flight::entry& e) { return e.what.id; });
  return f;
}

TUTTI_DECL std::unique_ptr<recording> read_recording(const std::string& path) {
  const os::fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file) return nullptr;
  auto r = std::make_unique<recording>();
  auto* const to = reinterpret_cast<std::byte*>(r.get());
  std::size_t got = 0;
  for (::ssize_t n = 1; got < sizeof(recording) && n > 0; got += n > 0 ? static_cast<std::size_t>(n) : 0)
    n = ::read(file.native(), to + got, sizeof(recording) - got);
  const recording_head& h = r->head;
  const bool good =
      got == sizeof(recording) && h.magic == h.sign && h.version == h.known_version && h.rank >= 0 && h.rank < h.size;
  return good ? std::move(r) : nullptr;
}

}  // namespace tutti::watch
