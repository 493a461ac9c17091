#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
class secret_source;
}

namespace tutti::doctor {

inline constexpr std::int64_t unlimited = -1;

struct network_interface {
  std::string name;
  std::vector<std::string> addresses;
  std::int64_t mbits = 0;  ///< 0: the kernel does not say
};

/// Another rank that cannot be reached, and the reason.
struct unreachable_rank {
  int rank = -1;
  std::string address;
  std::string why;
};

/// Knowledge of one rank about its process and its machine.
struct rank_facts {
  int rank = 0;
  int world_size = 1;
  int node = 0;
  std::string host;
  std::string kernel;
  std::string tutti;
  int pid = 0;
  std::string launcher;    ///< or the variables that gave rank and size; empty: none
  std::string rendezvous;  ///< URL, and its origin

  std::vector<network_interface> interfaces;
  std::string address;           ///< at which other ranks connect; empty: they need not
  std::string chosen_interface;  ///< that has this address
  std::vector<unreachable_rank> unreachable;

  std::int64_t open_files = unlimited;
  std::int64_t open_files_hard = unlimited;
  std::int64_t processes = unlimited;
  std::int64_t locked_memory = unlimited;
  std::int64_t memory_left = unlimited;  ///< bytes, within the limits of the control groups
  std::int64_t cgroup_left = unlimited;  ///< bytes that the control groups grant
  bool has_shm = false;                  ///< /dev/shm is mounted
  std::int64_t shm_free = 0;

  std::vector<int> cpus;  ///< allowed by the affinity mask
  int cpu_quota = 0;      ///< CPUs whose time the control groups grant; 0: no limit

  std::vector<std::string> gpus;
  std::string driver;          ///< of NVIDIA; empty: none
  std::string no_cuda;         ///< reason why CUDA's runtime cannot be used
  std::string nccl;            ///< version
  std::string no_nccl;         ///< reason why it cannot be used
  std::string nccl_interface;  ///< reason why NCCL finds no interface
  bool nccl_needs_shm = false;
  std::vector<std::string> fabric;  ///< devices of InfiniBand

  std::string secret;          ///< "none", "descriptor", "file, mode 0600", "of the step" of Slurm
  std::string secret_problem;  ///< reason why it cannot be read
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(network_interface, name, addresses, mbits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(unreachable_rank, rank, address, why)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(rank_facts, rank, world_size, node, host, kernel, tutti, pid, launcher, rendezvous,
                                   interfaces, address, chosen_interface, unreachable, open_files, open_files_hard,
                                   processes, locked_memory, memory_left, cgroup_left, has_shm, shm_free, cpus,
                                   cpu_quota, gpus, driver, no_cuda, nccl, no_nccl, nccl_interface, nccl_needs_shm,
                                   fabric, secret, secret_problem)

/// Collects the facts that need no other rank. Never throws for what cannot be read: it is left out. `secret` becomes
/// what was read from it, since a pipe gives it only once.
rank_facts collect(secret_source& secret);

/// Returns "0-3,8", as the kernel writes lists of CPUs, for ascending numbers.
std::string list_of(const std::vector<int>& numbers);

}  // namespace tutti::doctor
