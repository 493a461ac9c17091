#include "tutti-run/ranks/numa.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/os/read_file.hpp>

namespace tutti::launch {
namespace {

constexpr int cpus_at_most = 1 << 20;  // a list that says more is not one

// The number that all of a text is, or -1.
int number(std::string_view text) noexcept {
  const int value = tutti::detail::parse_decimal<int>(text).value_or(-1);
  return value < cpus_at_most ? value : -1;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view list) {
  std::vector<int> cpus;
  while (!list.empty() && list.back() == '\n') list.remove_suffix(1);
  while (!list.empty()) {
    const auto part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    const auto dash = part.find('-');
    const int first = number(part.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (first < 0 || last < first) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> numa_nodes(const std::string& directory, std::span<const int> allowed) {
  std::map<int, std::vector<int>> nodes;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator it{directory, unreadable}, end; !unreadable && it != end;
       it.increment(unreadable)) {
    const std::string name = it->path().filename();
    if (!name.starts_with("node")) continue;
    const int node = number(std::string_view{name}.substr(4));
    const auto list = node < 0 ? std::nullopt : os::read_file(it->path() / "cpulist");
    if (!list) continue;
    auto cpus = parse_cpu_list(*list);
    std::erase_if(cpus, [&](int cpu) { return std::ranges::find(allowed, cpu) == allowed.end(); });
    if (!cpus.empty()) nodes.emplace(node, std::move(cpus));
  }
  std::vector<std::vector<int>> found;
  for (auto& [node, cpus] : nodes) found.push_back(std::move(cpus));
  return found;
}

std::vector<std::vector<int>> spread_over(const std::vector<std::vector<int>>& nodes, int ranks) {
  if (nodes.size() < 2) return {};
  const auto n = static_cast<std::size_t>(ranks), each = n / nodes.size(), more = n % nodes.size();
  std::vector<std::vector<int>> cpus;
  for (std::size_t node = 0; node < nodes.size(); ++node) cpus.insert(cpus.end(), each + (node < more), nodes[node]);
  return cpus;
}

}  // namespace tutti::launch
