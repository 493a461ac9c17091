#pragma once
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/bootstrap/launch/claim.hpp>
#include <tutti/bootstrap/launch/environment.hpp>
#include <tutti/bootstrap/launch/rendezvous.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/read_file.hpp>

/// Facts about the processes that started this one, which init() uses in addition to a launcher's variables.
namespace tutti::detail {

/// Lookup of variables in an environment with some of them changed; an empty optional hides one. Refers to the original
/// lookup.
template <variable_lookup Get>
class changed_environment {
 public:
  explicit changed_environment(const Get& get) : get_(get) {}

  void set(std::string name, std::optional<std::string> value) {
    changes_.push_back({std::move(name), std::move(value)});
  }
  [[nodiscard]] std::optional<std::string_view> operator()(std::string_view name) const {
    for (const auto& [changed, value] : changes_)
      if (changed == name) return value ? std::optional<std::string_view>(*value) : std::nullopt;
    return get_(name);
  }

 private:
  struct change {
    std::string name;
    std::optional<std::string> value;
  };

  const Get& get_;
  std::vector<change> changes_;
};

struct parent_process {
  ::pid_t pid = 0;  ///< 0: unknown
  std::string name;
};

/// Returns the parent of a process and its name, from /proc.
inline parent_process parent_of(::pid_t pid) {
  const auto stat = os::read_file("/proc/" + std::to_string(pid) + "/stat", 1024);
  const auto end = stat ? stat->rfind(')') : std::string::npos;
  if (end == std::string::npos || end + 4 >= stat->size()) return {};
  const std::string_view rest = std::string_view(*stat).substr(end + 4);  // ") S " comes before the parent
  const auto parent = parse_decimal<::pid_t>(rest.substr(0, rest.find(' ')));
  if (!parent || *parent <= 0) return {};
  auto name = os::read_file("/proc/" + std::to_string(*parent) + "/comm", 64).value_or("");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return {*parent, std::move(name)};
}

/// Returns a name for the job of MPICH's mpiexec, which sets none: all ranks of a machine descend from one proxy
/// process, which no other job has. If no ancestor is a proxy, the parent is used.
inline std::optional<std::string> hydra_job() {
  constexpr int generations = 16;
  ::pid_t chosen = 0;
  ::pid_t pid = ::getpid();
  for (int i = 0; i < generations; ++i) {
    const parent_process parent = parent_of(pid);
    if (parent.pid <= 1) break;
    pid = parent.pid;
    const bool proxy = parent.name.starts_with("hydra_pmi_prox");
    if (proxy || chosen == 0) chosen = pid;
    if (proxy) break;
  }
  const auto began = chosen != 0 ? os::process_start_time(chosen) : std::nullopt;
  if (!began) return std::nullopt;
  return "hydra-" + std::to_string(chosen) + "-" + std::to_string(*began);
}

/// Sets PMI_JOBID to the name of a hydra job if all ranks are on this machine and no variable names the job.
template <variable_lookup Get>
void add_hydra_job(changed_environment<Get>& get, std::optional<std::string> (*name)()) {
  const auto size = get("PMI_SIZE"), local = get("MPI_LOCALNRANKS");
  if (!size || size != local || get("PMI_JOBID") || get("TUTTI_JOB")) return;
  if (auto job = name()) get.set("PMI_JOBID", std::move(job));
}

/// Returns the rendezvous at a local socket for a torchrun with all ranks on this machine, so that no port beside
/// torchrun's own is needed. The name contains that port, which is unique among the jobs of this machine. Returns
/// nullopt in all other cases.
std::optional<rendezvous_url> torchrun_socket(const variable_lookup auto& get, std::uint32_t user) {
  if (!get("TORCHELASTIC_RUN_ID") && !get("GROUP_WORLD_SIZE")) return std::nullopt;
  const auto size = get("WORLD_SIZE"), port = get("MASTER_PORT");
  if (!size || size != get("LOCAL_WORLD_SIZE") || !port) return std::nullopt;
  const auto text = [&](const char* name) { return std::string(get(name).value_or("")); };
  return local_rendezvous(user, "torchrun-" + std::string(*port) + "-" + text("TORCHELASTIC_RUN_ID") + "-" +
                                    text("TORCHELASTIC_RESTART_COUNT"));
}

}  // namespace tutti::detail
