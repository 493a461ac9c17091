#include "table.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string_view>
#include <tuple>
#include <tutti/os/memory.hpp>
#include <utility>

namespace tutti::doctor {
namespace {

using row = std::vector<std::string>;

std::string limit(std::int64_t value) { return value == unlimited ? "unlimited" : std::to_string(value); }

std::string size_of(std::int64_t bytes) {
  constexpr std::int64_t kib = 1024, mib = kib * kib;
  if (bytes == unlimited) return "unlimited";
  return os::format_bytes(static_cast<std::uint64_t>(bytes < mib ? bytes : bytes / mib * mib));
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string count_of(std::size_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string{what} + (n == 1 ? "" : "s");
}

/// Returns the rows with their columns below each other; the first row is the heading.
std::string aligned(const std::vector<row>& rows) {
  std::vector<std::size_t> widths;
  for (const row& r : rows)
    for (std::size_t c = 0; c < r.size(); ++c) {
      if (widths.size() <= c) widths.push_back(0);
      widths[c] = std::max(widths[c], r[c].size());
    }
  std::string text;
  for (const row& r : rows) {
    std::string line;
    for (std::size_t c = 0; c < r.size(); ++c)
      line += r[c] + (c + 1 < r.size() ? std::string(widths[c] - r[c].size() + 2, ' ') : "");
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string interfaces_of(const rank_facts& f) {
  std::string text;
  for (const network_interface& i : f.interfaces) {
    if (i.name == "lo" && i.name != f.chosen_interface) continue;
    text += (text.empty() ? "" : ", ") + i.name + (i.name == f.chosen_interface ? "*" : "");
  }
  return text.empty() ? "none" : text;
}

std::string devices_of(const rank_facts& f) {
  if (f.gpus.empty()) return "none";
  return std::to_string(f.gpus.size()) + " (" + (f.nccl.empty() ? "no NCCL" : "NCCL " + f.nccl) + ")";
}

std::string ranks_table(const report& all) {
  std::vector<row> rows{{"rank", "host", "kernel", "CPUs", "memory", "files", "processes", "locked", "/dev/shm",
                         "interfaces", "address", "GPUs", "secret"}};
  for (const rank_facts& f : all.ranks)
    rows.push_back({std::to_string(f.rank), f.host, f.kernel,
                    list_of(f.cpus) + (f.cpu_quota > 0 ? " (" + std::to_string(f.cpu_quota) + " at a time)" : ""),
                    size_of(f.memory_left), limit(f.open_files), limit(f.processes), size_of(f.locked_memory),
                    f.has_shm ? size_of(f.shm_free) : "none", interfaces_of(f),
                    f.address.empty() ? "memory only" : f.address, devices_of(f),
                    f.secret_problem.empty() ? f.secret : "unreadable"});
  return aligned(rows);
}

std::string pairs_table(const report& all) {
  if (!all.not_measured.empty()) return "not measured: " + all.not_measured + "\n";
  constexpr std::size_t most = 36;
  std::vector<pair_link> shown = all.pairs;
  std::ranges::sort(shown, {},
                    [](const pair_link& p) { return std::tuple{std::min(p.there_gbps, p.back_gbps), p.a, p.b}; });
  if (shown.size() > most) shown.resize(most);
  std::ranges::sort(shown, {}, [](const pair_link& p) { return std::pair{p.a, p.b}; });
  std::vector<row> rows{{"ranks", "by", "one way", "there", "back"}};
  for (const pair_link& p : shown)
    rows.push_back({std::to_string(p.a) + "-" + std::to_string(p.b), p.memory ? "memory" : "TCP",
                    fixed(p.latency_us, 1) + " us", fixed(p.there_gbps, 2) + " GB/s", fixed(p.back_gbps, 2) + " GB/s"});
  std::string text = aligned(rows);
  if (all.pairs.size() > most)
    text += "(the " + std::to_string(most) + " slowest of " + std::to_string(all.pairs.size()) + " pairs)\n";
  return text;
}

std::string clocks_table(const report& all) {
  std::vector<row> rows{{"rank", "host", "clock", "within"}};
  for (const clock_offset& c : all.clocks) {
    const auto at = std::ranges::find(all.ranks, c.rank, &rank_facts::rank);
    rows.push_back({std::to_string(c.rank), at == all.ranks.end() ? "" : at->host,
                    (c.seconds < 0 ? "" : "+") + fixed(c.seconds * 1000, 3) + " ms",
                    fixed(c.uncertainty * 1000, 3) + " ms"});
  }
  return aligned(rows);
}

}  // namespace

bool has_errors(const std::vector<finding>& found) {
  return std::ranges::any_of(found, [](const finding& f) { return f.how == severity::error; });
}

std::string to_text(const std::vector<finding>& found, const report& all) {
  std::string text;
  for (const finding& f : found)
    text += (f.how == severity::error ? "ERROR    " : "warning  ") + describe(f.ranks, all) + " " + f.what +
            "\n         -> " + f.remedy + "\n";
  return text;
}

std::string to_text(const report& all, const std::vector<finding>& found) {
  const auto errors = static_cast<std::size_t>(std::ranges::count(found, severity::error, &finding::how));
  std::string text;
  if (!all.ranks.empty()) {
    const rank_facts& first = all.ranks.front();
    text = "tutti " + first.tutti + ", " + count_of(all.ranks.size(), "rank");
    text += first.launcher.empty() ? ", no launcher\n" : ", by " + first.launcher + "\n";
    if (!first.rendezvous.empty()) text += "rendezvous " + first.rendezvous + "\n";
  }
  text += "\n" + ranks_table(all);
  if (all.ranks.size() > 1) text += "\n" + pairs_table(all);
  if (!all.clocks.empty()) text += "\n" + clocks_table(all);
  if (!found.empty()) text += "\n" + to_text(found, all);
  return text + "\n" +
         (found.empty() ? std::string{"nothing found"}
                        : count_of(errors, "error") + ", " + count_of(found.size() - errors, "warning")) +
         "\n";
}

std::string to_json_text(const report& all, const std::vector<finding>& found) {
  nlohmann::json document = all;
  document["findings"] = found;
  document["ok"] = !has_errors(found);
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::doctor
