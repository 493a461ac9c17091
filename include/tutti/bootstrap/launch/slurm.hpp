#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch/claim.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>

namespace tutti::detail {

/// Range of the rendezvous ports of Slurm job steps, [20480, 28672): below Linux's ephemeral ports (32768 and up), so
/// that no outgoing connection holds one by chance. Neighbouring jobs and steps get different ports.
inline constexpr std::uint64_t slurm_first_port = 20480;
inline constexpr std::uint64_t slurm_port_count = 8192;

inline std::uint16_t slurm_port(std::uint64_t job, std::uint64_t step) noexcept {
  return static_cast<std::uint16_t>(slurm_first_port + (job * 31 + step) % slurm_port_count);
}

/// Returns a variable of Slurm that also has an older name.
std::optional<std::string_view> slurm_variable(const variable_lookup auto& get, std::string_view name,
                                               std::string_view older) {
  const auto value = get(name);
  return value ? value : get(older);
}

/// Returns the id of the step that srun started; nullopt in a batch script or an interactive allocation, whose
/// pseudo-steps have a word or a number from 0xfffffff0 on.
std::optional<std::uint64_t> slurm_step(const variable_lookup auto& get) {
  const auto text = slurm_variable(get, "SLURM_STEP_ID", "SLURM_STEPID");
  const auto step = text ? parse_decimal<std::uint64_t>(*text) : std::nullopt;
  return step && *step < 0xfffffff0u ? step : std::nullopt;
}

/// Returns the tasks on node `node` of a list such as "4(x2),3"; nullopt if the list is malformed.
inline std::optional<int> slurm_tasks_on_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(item.size() == list.size() ? item.size() : item.size() + 1);
    const std::size_t times = item.find("(x");
    int nodes = 1;
    if (times != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      const auto n = parse_decimal<int>(item.substr(times + 2, item.size() - times - 3));
      if (!n) return std::nullopt;
      nodes = *n;
    }
    const auto tasks = parse_decimal<int>(item.substr(0, times));
    if (!tasks) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

/// Returns true if rank and size are set; a container, or a launcher that removes variables of others, may leave one of
/// them.
bool slurm_rank_and_size(const variable_lookup auto& get) {
  return get("SLURM_PROCID") && (get("SLURM_STEP_NUM_TASKS") || get("SLURM_NTASKS"));
}

/// Returns the claim of the task that srun started. The step's own count precedes: inside a job, SLURM_NTASKS may still
/// be the allocation's, while a step has fewer tasks.
launch_claim slurm_task(const variable_lookup auto& get) {
  if (!slurm_step(get)) return {};
  launch_variables names{launcher::slurm,        "srun",          "SLURM_PROCID",
                         "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};
  if (!get(names.world_size)) names.world_size = "SLURM_NTASKS";
  if (!get(names.local_size)) names.local_size = "SLURM_TASKS_PER_NODE";
  const auto rank = read_number(get, names.rank, 0);
  const auto size = read_number(get, names.world_size, 1);
  if (!rank || !size)
    throw usage_error(std::string("environment: ") + show("SLURM_STEP_ID", std::to_string(*slurm_step(get))) +
                      " without " + (rank ? "SLURM_STEP_NUM_TASKS" : "SLURM_PROCID") +
                      "; pass all SLURM_ variables on to the program (a container may hide some)");
  launch_claim c{names, *rank, *size};
  c.local_rank = read_number(get, names.local_rank, 0).value_or(-1);
  const auto node = read_number(get, "SLURM_NODEID", 0);
  const auto tasks = get(names.local_size);
  if (node && tasks) c.local_size = slurm_tasks_on_node(*tasks, *node).value_or(-1);
  check_claim(c);
  return c;
}

/// Throws usage_error if a world size given to a task by hand counts the nodes of its step, while the rank counts its
/// tasks: the first tasks would be a world without the others.
void refuse_size_in_nodes(const variable_lookup auto& get, int rank, int world_size) {
  if (!slurm_step(get) || world_size < 2) return;
  const char* nodes = get("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  const char* tasks = get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const auto number = [&](const char* name) { return parse_decimal<int>(get(name).value_or("")); };
  const auto size = number(tasks);
  if (!size || size == world_size || number(nodes) != world_size || number("SLURM_PROCID") != rank) return;
  throw usage_error("environment: a world of size " + std::to_string(world_size) + ", which is " +
                    show(nodes, world_size) + ", and rank " + std::to_string(rank) + ", which is " +
                    show("SLURM_PROCID", rank) + ": that counts tasks, of which there are " + show(tasks, *size) +
                    "; give the world the size " + std::to_string(*size) +
                    ", or give neither, as init() reads both from srun's variables");
}

/// Returns the claim of a process inside an allocation that srun did not start (a batch script, a shell): a world of
/// one. Throws usage_error if the allocation has several tasks.
launch_claim slurm_allocation(const variable_lookup auto& get) {
  const auto job = slurm_variable(get, "SLURM_JOB_ID", "SLURM_JOBID");
  const char* name = get("SLURM_NTASKS")          ? "SLURM_NTASKS"
                     : get("SLURM_JOB_NUM_NODES") ? "SLURM_JOB_NUM_NODES"
                                                  : "SLURM_NNODES";
  const int tasks = read_number(get, name, 1).value_or(1);
  if (tasks > 1)
    throw usage_error(
        "environment: " + show(name, tasks) + ", but srun did not start this process (no SLURM_STEP_ID of a " +
        "task); start the program with srun or tutti-run, or set TUTTI_RANK=0 and TUTTI_WORLD_SIZE=1 to " +
        "run it alone");
  if (!job && !get("SLURM_PROCID")) return {};
  return {{launcher::slurm, "sbatch", "SLURM_PROCID", name, "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"}, 0, 1, 0, 1};
}

}  // namespace tutti::detail
