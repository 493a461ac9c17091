#pragma once
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch/claim.hpp>
#include <tutti/bootstrap/launch/slurm.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/rendezvous/url.hpp>

namespace tutti::detail {

/// Claim that counts, if there is one, and the claim of the launcher that confirms the same rank, if one does. The two
/// differ if RANK and WORLD_SIZE were set by hand.
struct launch_selection {
  launch_claim claim;
  launch_claim launcher;
};

/// Returns TUTTI_RENDEZVOUS, parsed; env:// if it is not set.
rendezvous_url explicit_rendezvous(const variable_lookup auto& get) {
  const auto text = get("TUTTI_RENDEZVOUS");
  if (!text) return {};
  try {
    return parse_rendezvous(*text);
  } catch (const usage_error& e) {
    throw usage_error(std::string("environment: TUTTI_RENDEZVOUS: ") + e.what());
  }
}

/// Returns the claim in TUTTI_* variables, or in the query of the URL of the rendezvous; none if the query has only one
/// of the two. Throws usage_error if they contradict each other.
launch_claim tutti_claim(const variable_lookup auto& get, const rendezvous_url& url) {
  refuse_half(get, tutti_variables);
  auto claim = read_claim(get, tutti_variables);
  if (claim && get("RANK") == get("TUTTI_RANK") && get("WORLD_SIZE") == get("TUTTI_WORLD_SIZE")) {
    if (claim.local_rank < 0) claim.local_rank = read_number(get, "LOCAL_RANK", 0).value_or(-1);
    if (claim.local_size < 0) claim.local_size = read_number(get, "LOCAL_WORLD_SIZE", 1).value_or(-1);
  }
  if (!url.rank && !url.world_size) return claim;
  const std::string shown = show("TUTTI_RENDEZVOUS", to_string(url));
  if (claim &&
      (url.rank.value_or(claim.rank) != claim.rank || url.world_size.value_or(claim.world_size) != claim.world_size))
    throw usage_error("environment: " + shown + " contradicts " + show(claim) + "; keep one of the two");
  if (claim || !url.rank || !url.world_size) return claim;
  launch_variables names = tutti_variables;
  names.rank = "TUTTI_RENDEZVOUS: rank";
  names.world_size = "TUTTI_RENDEZVOUS: world_size";
  return {names, *url.rank, *url.world_size};
}

/// Returns the claim of the innermost launcher. mpirun and mpiexec precede srun: inside an allocation they start their
/// daemons with srun, and SLURM_PROCID and SLURM_STEP_NUM_TASKS count daemons there.
launch_claim launcher_claim(const variable_lookup auto& get) {
  for (const launch_variables& names : mpi_variables)
    if (auto claim = read_claim(get, names)) return claim;
  return slurm_task(get);
}

/// Throws usage_error if srun has started several single-node torchruns: each would be a world of its own, usually
/// because a launch script fell back to one node and localhost.
void check_torchrun(const variable_lookup auto& get) {
  const auto agents = read_number(get, "GROUP_WORLD_SIZE", 1);
  const auto task = agents == 1 && slurm_rank_and_size(get) ? slurm_task(get) : launch_claim{};
  if (task.world_size <= 1) return;
  throw usage_error("environment: " + show("GROUP_WORLD_SIZE", 1) + " (torchrun), but srun started torchrun " +
                    std::to_string(task.world_size) + " times (" + show(task.names.world_size, task.world_size) +
                    "): as many worlds apart; give torchrun --nnodes and --rdzv-endpoint, or, if they are meant to be "
                    "apart, start each with srun --ntasks=1 or under env -u SLURM_STEP_ID -u SLURM_STEPID");
}

/// Returns true if each task of a launcher has started several processes itself: WORLD_SIZE = tasks x LOCAL_WORLD_SIZE,
/// numbered task by task.
inline bool forked_by_tasks(const launch_claim& hand, const launch_claim& task) noexcept {
  return hand.local_size > 1 && hand.world_size / hand.local_size == task.world_size &&
         hand.world_size % hand.local_size == 0 && hand.rank / hand.local_size == task.rank;
}

/// Throws usage_error if a RANK or WORLD_SIZE set by hand contradicts the launcher.
void check_by_hand(const variable_lookup auto& get, const launch_claim& task) {
  const auto check = [&](const char* name, const char* other, int number) {
    const auto value = read_number(get, name, 0);
    if (!value || *value == number) return;
    throw usage_error("environment: " + show(name, *value) + " contradicts " + show(other, number) + " (" +
                      task.names.command + "); unset " + name +
                      ", or make them equal, or set TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_RENDEZVOUS");
  };
  check(torchrun_variables.world_size, task.names.world_size, task.world_size);
  check(torchrun_variables.rank, task.names.rank, task.rank);
}

/// Returns the claim of torchrun, of a launcher, or of RANK and WORLD_SIZE set by hand, which must agree with the
/// launcher if there is one.
launch_selection torchrun_or_launcher(const variable_lookup auto& get) {
  launch_variables names = torchrun_variables;
  const bool torchrun = get("TORCHELASTIC_RUN_ID") || get("GROUP_WORLD_SIZE");
  if (!torchrun) {
    names.by = launcher::by_hand;
    names.command = "set by hand";
  }
  auto claim = read_claim(get, names);
  if (torchrun && claim) {
    check_torchrun(get);
    return {claim, {}};
  }
  auto task = launcher_claim(get);
  if (!task) {
    refuse_half(get, names);
    return {claim, {}};
  }
  if (claim && forked_by_tasks(claim, task)) return {claim, {}};
  check_by_hand(get, task);
  if (task.names.by == launcher::mpich)  // srun --mpi=pmi2 sets both kinds, and only its own name the nodes
    if (auto srun = slurm_task(get); srun && srun.rank == task.rank && srun.world_size == task.world_size) task = srun;
  if (!claim) return {task, task};
  if (claim.local_rank < 0) claim.local_rank = task.local_rank;
  if (claim.local_size < 0) claim.local_size = task.local_size;
  return {claim, task};
}

/// Throws usage_error if the query of the URL of the rendezvous has a rank or a world size, but not both, and no
/// launcher has given the same.
inline void check_half_query(const rendezvous_url& url, const launch_claim& claim) {
  if (url.rank.has_value() == url.world_size.has_value()) return;
  const std::string shown = show("TUTTI_RENDEZVOUS", to_string(url));
  if (!claim)
    throw usage_error("environment: " + shown + " has only one of ?rank= and &world_size=; give both or neither");
  const auto check = [&](std::optional<int> value, const char* name, int number) {
    if (!value || *value == number) return;
    throw usage_error("environment: " + shown + " contradicts " + show(name, number) + " (" + claim.names.command +
                      "); leave rank and world_size out, or make them equal");
  };
  check(url.world_size, claim.names.world_size, claim.world_size);
  check(url.rank, claim.names.rank, claim.rank);
}

/// Returns rank and world size of this process; no claim if no launcher has set a variable. `given` is the rendezvous
/// that was named, if one was.
launch_selection select_launch(const variable_lookup auto& get, const rendezvous_url& given) {
  if (const auto claim = tutti_claim(get, given)) {
    refuse_size_in_nodes(get, claim.rank, claim.world_size);
    return {claim, {}};
  }
  const auto selection = torchrun_or_launcher(get);
  check_half_query(given, selection.claim);
  if (selection.claim) return selection;
  for (const launch_variables& names : mpi_variables) refuse_half(get, names);
  if (const auto claim = slurm_allocation(get)) return {claim, claim};
  const auto refuse = [](const char* name, std::string_view value) {
    throw usage_error("environment: " + show(name, value) +
                      ", but nothing gives this process a rank; set RANK and WORLD_SIZE for every process, or unset " +
                      name + " to run alone");
  };
  if (given.kind != rendezvous_url::scheme::env) refuse("TUTTI_RENDEZVOUS", to_string(given));
  for (const char* trace : {"TUTTI_RENDEZVOUS", "TUTTI_JOB", "MASTER_ADDR", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                            "TORCHELASTIC_RUN_ID", "PMIX_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                            "HOROVOD_LOCAL_RANK", "HOROVOD_GLOO_RENDEZVOUS_ADDR"})
    if (const auto value = get(trace)) refuse(trace, *value);
  return {};
}

}  // namespace tutti::detail
