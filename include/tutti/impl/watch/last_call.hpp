#pragma once
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/config.hpp>
#include <tutti/core/text.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/watch/dump.hpp>
#include <tutti/watch/last_call.hpp>

namespace tutti::watch {

namespace detail {

/// Returns the recording of `rank` of the same world as `own`, which its process keeps in memory: an open file of the
/// process, which the kernel lets processes of the same user open.
TUTTI_DECL std::unique_ptr<recording> recording_in_process(const recording& own, int rank, std::int32_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<::DIR, int (*)(::DIR*)> all{::opendir(folder.c_str()), &::closedir};
  if (!all) return nullptr;
  const std::string memory = std::string("/memfd:") + recording_head::memory_name + " (deleted)";
  while (const ::dirent* one = ::readdir(all.get())) {
    const std::string path = folder + "/" + static_cast<const char*>(one->d_name);
    std::array<char, 64> target{};
    const ::ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
    if (n < 0 || std::string_view{target.data(), static_cast<std::size_t>(n)} != memory) continue;
    auto r = read_recording(path);
    if (r && r->head.world == own.head.world && r->head.rank == rank) return r;
  }
  return nullptr;
}

/// Returns the recording of `rank` of the same world as `own` in a folder. Its process may have joined more worlds, or
/// fewer, so its file may have another number.
TUTTI_DECL std::unique_ptr<recording> recording_in_folder(const recording& own, const std::string& folder, int rank) {
  const auto of_world = [&](const std::string& path) {
    auto r = read_recording(path);
    if (r && (r->head.world != own.head.world || r->head.rank != rank)) r.reset();
    return r;
  };
  if (auto r = of_world(ring_path(folder, rank, own.head.number))) return r;
  const std::unique_ptr<::DIR, int (*)(::DIR*)> all{::opendir(folder.c_str()), &::closedir};
  const std::string begin = "rank_" + std::to_string(rank) + '.';
  while (const ::dirent* one = all ? ::readdir(all.get()) : nullptr) {
    const std::string_view name = one->d_name;
    if (!name.starts_with(begin) || !name.ends_with(".ring")) continue;
    if (auto r = of_world(folder + "/" + one->d_name)) return r;
  }
  return nullptr;
}

/// Returns the text of an operation: "recv #3 (eval.cpp:20, 1000 x float32, from rank 1, tag 7)".
TUTTI_DECL std::string operation_text(const flight& f, const operation& o) {
  std::string text = std::string(o.call.name()) + " #" + std::to_string(o.sequence);
  if (o.context != 0 && !o.call.is_message()) text += " of split " + std::to_string(unsigned{o.context});
  std::string more;
  const auto add = [&](const std::string& word) { more += (more.empty() ? "" : ", ") + word; };
  if (o.site != 0 && o.site < f.sites.size()) {
    const flight::site& s = f.sites[o.site];
    add(s.file.substr(s.file.rfind('/') + 1) + ":" + std::to_string(s.line));
  }
  if (o.count != 0) add(std::to_string(o.count) + " x " + std::string(tutti::name(o.type)));
  if (o.reduction) add(tutti::name(*o.reduction));
  if (o.bucket() >= 0) add("gradient bucket " + std::to_string(o.bucket()));
  if (o.other >= 0) {
    const bool sends = o.call.number == call_kind::of("send").number;
    add((!o.call.is_message() ? "root " : sends ? "to rank " : "from rank ") + std::to_string(f.other_of(o)));
  }
  if (o.call.is_message()) add("tag " + std::to_string(o.tag));
  return more.empty() ? text : text + " (" + more + ")";
}

}  // namespace detail

TUTTI_DECL std::optional<flight> recording_of(const recording& own, const std::string& folder, int rank,
                                              std::int32_t pid) {
  std::unique_ptr<recording> r;
  if (!folder.empty()) r = detail::recording_in_folder(own, folder, rank);
  if (!r && pid != 0) r = detail::recording_in_process(own, rank, pid);
  if (!r) return std::nullopt;
  return copy_of(*r, os::read_clocks(), text_of(r->head.boot) == text_of(own.head.boot));
}

TUTTI_DECL std::uint64_t last_collective(const flight& f, std::uint32_t context) noexcept {
  std::uint64_t last = 0;
  for (const flight::entry& e : f.entries)
    if (!e.what.call.is_message() && e.what.context == static_cast<std::uint16_t>(context))
      last = (std::max)(last, e.what.sequence);
  return last;
}

TUTTI_DECL std::string last_call_text(const flight& f) {
  const auto ago = [&](std::int64_t from) {
    return tutti::detail::in_seconds(std::chrono::nanoseconds((std::max)(f.taken - from, std::int64_t{0})));
  };
  const auto is_in_flight = [](const flight::entry& e) {
    return e.what.state == progress::scheduled || e.what.state == progress::started;
  };
  std::string text;
  if (f.left != 0 && f.failed == 0)
    text = "it has left the world";
  else if (f.entries.empty())
    text = "it has made no call";
  else if (const auto e = std::ranges::find_if(f.entries, is_in_flight); e != f.entries.end())
    text = "it has been in " + detail::operation_text(f, e->what) + " for " + ago(e->issued);
  else
    text = "its last call, " + detail::operation_text(f, f.entries.back().what) +
           (f.entries.back().what.state == progress::failed ? ", failed " : ", ended ") + ago(f.entries.back().ended) +
           " ago";
  if (f.pid == 0 || f.boot != kernel_and_pids()) return text;
  const auto s = os::detail::read_process_stat(f.pid);
  if (s.start_time == f.start_time && os::detail::is_stopped(s.state)) text += ", and its process is stopped";
  return text;
}

}  // namespace tutti::watch
