#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch/slurm.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>

namespace tutti::detail {

/// Lookup of variables as the innermost launcher set them. tutti-run removes the variables of other launchers, so any
/// that stand beside its own come from a launcher that one of its ranks has started, such as an mpirun inside a script.
/// The variables of tutti-run are hidden then: they describe another world and its rendezvous.
template <variable_lookup Get>
class inner_environment {
 public:
  explicit inner_environment(const Get& get) : get_(get) {
    const auto job = get("TUTTI_JOB"), place = get("TUTTI_RENDEZVOUS"), master = get("MASTER_ADDR");
    const bool local = job && place == "unix:@tutti-" + std::string(*job);
    const bool across = get("TUTTI_REPORT_FD") && place && master && at_host(*place, std::string(*master));
    if (!(local || across) || get("TUTTI_RANK")) return;
    torchrun_ = get("TORCHELASTIC_RUN_ID") || get("GROUP_WORLD_SIZE");
    hides_ = torchrun_ || get("OMPI_COMM_WORLD_RANK") || get("PMI_RANK") || get("HOROVOD_RANK") || slurm_step(get);
    own_master_ = across || master == "127.0.0.1";
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
    if (torchrun_) return false;  // torchrun has set these itself
    return among(places) || (own_master_ && (name == "MASTER_ADDR" || name == "MASTER_PORT"));
  }

  static bool at_host(std::string_view url, const std::string& host) {
    return url.starts_with("tcp://" + host + ":") || url.starts_with("tcp://[" + host + "]:");
  }

  const Get& get_;
  bool hides_ = false;
  bool torchrun_ = false;
  bool own_master_ = false;  ///< as tutti-run sets it, unless the user asks for another
};

}  // namespace tutti::detail
