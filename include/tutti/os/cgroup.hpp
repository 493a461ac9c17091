#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/os/read_file.hpp>

namespace tutti::os {

namespace detail {

inline std::optional<std::uint64_t> parse_number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// Returns the number behind "name " or "name: " at the beginning of a line.
inline std::optional<std::uint64_t> field_of(std::string_view text, std::string_view name) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    if (line.size() > name.size() && line.substr(0, name.size()) == name) {
      const auto digit = line.find_first_of("0123456789", name.size());
      if (digit != std::string_view::npos) return parse_number(line.substr(digit));
    }
    at += line.size() + 1;
  }
  return std::nullopt;
}

/// Returns the directory of this process's control group for `controller`, and the mount point at which the search
/// upwards ends.
inline std::pair<std::string, std::string> cgroup_directory(std::string_view controller) {
  const std::string table = read_file("/proc/self/cgroup").value_or("");
  std::pair<std::string, std::string> unified;
  for (std::size_t at = 0; at < table.size();) {
    const std::string line = table.substr(at, table.find('\n', at) - at);
    at += line.size() + 1;
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (names.find("," + std::string{controller} + ",") != std::string::npos) {
      const std::string mount = "/sys/fs/cgroup/" + std::string{controller};
      return {mount + path, mount};
    }
    if (names == ",,") unified = {"/sys/fs/cgroup" + path, "/sys/fs/cgroup"};
  }
  return unified;
}

/// Returns the directories of this process's control group and of all groups that contain it.
inline std::vector<std::string> cgroup_directories(std::string_view controller) {
  auto [directory, mount] = cgroup_directory(controller);
  std::vector<std::string> all;
  while (!directory.empty() && directory.size() >= mount.size()) {
    all.push_back(directory);
    const auto slash = directory.rfind('/');
    if (slash == std::string::npos || directory == mount) break;
    directory.resize(slash);
  }
  return all;
}

/// Returns the first number in a file; nothing if it has none ("max") or cannot be read.
inline std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto text = read_file(path);
  return text ? parse_number(*text) : std::nullopt;
}

}  // namespace detail

/// Returns the number of CPUs whose time the control groups grant this process, rounded up; nothing if there is no
/// limit.
[[nodiscard]] inline std::optional<int> cgroup_cpu_limit() {
  std::optional<int> limit;
  const auto lower = [&](std::uint64_t quota, std::uint64_t period) {
    if (period == 0) return;
    const int cpus = static_cast<int>(std::clamp<std::uint64_t>((quota + period - 1) / period, 1, 1 << 20));
    limit = limit ? (std::min)(*limit, cpus) : cpus;
  };
  for (const std::string& directory : detail::cgroup_directories("cpu")) {
    if (const auto both = read_file(directory + "/cpu.max")) {
      const auto quota = detail::parse_number(*both);
      const auto space = both->find(' ');
      if (quota && space != std::string::npos) lower(*quota, detail::parse_number(both->substr(space + 1)).value_or(0));
    }
    const auto quota = detail::number_in(directory + "/cpu.cfs_quota_us");
    if (quota) lower(*quota, detail::number_in(directory + "/cpu.cfs_period_us").value_or(0));
  }
  return limit;
}

/// Returns the bytes of memory that the control groups still grant this process, reclaimable file cache included;
/// nothing if there is no limit.
[[nodiscard]] inline std::optional<std::uint64_t> cgroup_memory_headroom() {
  std::optional<std::uint64_t> room;
  constexpr const char* names[][2] = {{"/memory.max", "/memory.current"},
                                      {"/memory.limit_in_bytes", "/memory.usage_in_bytes"}};
  for (const std::string& directory : detail::cgroup_directories("memory")) {
    for (const auto& [limit_name, used_name] : names) {
      const auto limit = detail::number_in(directory + limit_name), used = detail::number_in(directory + used_name);
      if (!limit || !used) continue;
      const auto cache =
          detail::field_of(read_file(directory + "/memory.stat").value_or(""), "inactive_file").value_or(0);
      const std::uint64_t busy = *used - (std::min)(*used, cache);
      const std::uint64_t left = *limit - (std::min)(*limit, busy);
      room = room ? (std::min)(*room, left) : left;
    }
  }
  return room;
}

}  // namespace tutti::os
