#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch/slurm.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>

namespace tutti::detail {

/// The environment of a process for the innermost launcher. tutti-run removes the variables of other launchers, so
/// those that stand beside its own belong to one that was started by a rank of it: mpirun inside a script, say. What
/// that rank was given is hidden then, as it says another world's size, and a place where that world meets.
template <variable_lookup Get>
class inner_environment {
 public:
  explicit inner_environment(const Get& get) : get_(get) {
    const auto job = get("TUTTI_JOB");
    const bool tutti_run = job && get("TUTTI_RENDEZVOUS") == "unix:@tutti-" + std::string(*job);
    if (!tutti_run || get("TUTTI_RANK")) return;
    torchrun_ = get("TORCHELASTIC_RUN_ID") || get("GROUP_WORLD_SIZE");
    hides_ = torchrun_ || get("OMPI_COMM_WORLD_RANK") || get("PMI_RANK") || get("HOROVOD_RANK") || slurm_step(get);
    local_master_ = get("MASTER_ADDR") == "127.0.0.1";
  }

  [[nodiscard]] std::optional<std::string_view> operator()(std::string_view name) const {
    return hides_ && outer(name) ? std::nullopt : get_(name);
  }

 private:
  [[nodiscard]] bool outer(std::string_view name) const noexcept {
    constexpr std::array always{"TUTTI_JOB", "TUTTI_RENDEZVOUS", "TUTTI_REPORT_FD"};
    constexpr std::array places{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"};
    const auto among = [name](const auto& names) { return std::ranges::find(names, name) != names.end(); };
    if (among(always)) return true;
    if (torchrun_) return false;  // which has put its own in their place
    return among(places) || (local_master_ && (name == "MASTER_ADDR" || name == "MASTER_PORT"));
  }

  const Get& get_;
  bool hides_ = false;
  bool torchrun_ = false;
  bool local_master_ = false;  ///< what tutti-run sets, unless the user asks for another
};

}  // namespace tutti::detail
