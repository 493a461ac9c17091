#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tutti/bootstrap/launch.hpp>
#include <tutti/bootstrap/launch/claim.hpp>
#include <tutti/bootstrap/launch/inner_environment.hpp>
#include <tutti/bootstrap/launch/rendezvous.hpp>
#include <tutti/bootstrap/launch/selection.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>

namespace tutti {

namespace detail {

/// Does what read_environment() does with a rendezvous that was `given`, if one was.
std::optional<launch> read_launch(const variable_lookup auto& get, std::uint32_t user, const rendezvous_url& given) {
  const auto chosen = select_launch(get, given);
  if (!chosen.claim) return std::nullopt;
  const launch_claim& claim = chosen.claim;
  launch found{claim.rank, claim.world_size, claim.local_rank, claim.local_size, "", {}, show(claim), ""};
  const launcher by = (chosen.launcher ? chosen.launcher : claim).names.by;
  const bool plain = by == launcher::tutti_run || by == launcher::by_hand;  // their names are the same
  found.by = !plain ? by : get("TUTTI_REPORT_FD") ? launcher::tutti_run : launcher::by_hand;
  found.job = job_name(get, by);
  auto [url, source] = choose_rendezvous(get, given, chosen, found.job, user);
  found.rendezvous = std::move(url);
  found.rendezvous_source = std::move(source);
  return found;
}

}  // namespace detail

/// Returns a variable of this process. The view is valid until the environment is changed.
inline std::optional<std::string_view> process_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? std::optional<std::string_view>(value) : std::nullopt;
}

/// Reads a launcher's variables through `given`; nullopt if there are none: a world of one. Has no side effects. `user`
/// is the user id, a part of the name of a rendezvous inside one machine.
///
/// Rank and size come from the first source that gives both: TUTTI_* (then nothing else is checked); torchrun's RANK
/// and WORLD_SIZE; Open MPI; MPICH and PMI; Horovod; a Slurm task (after mpirun, whose daemons srun starts). All
/// precede the variables that tutti-run gave to the rank that started them. RANK and WORLD_SIZE set by hand must agree
/// with the launcher; one of them alone is only checked. The rendezvous is the first of: TUTTI_RENDEZVOUS; MASTER_ADDR
/// and MASTER_PORT (+ 1 beside torchrun's own store); a socket of this machine if all ranks are on it; the first node
/// of a Slurm step, with a port from the job's id; the host of horovodrun's server and its port + 1.
///
/// Thread safety is that of `given`; the default must not run while another thread changes the environment. Errors:
/// usage_error quotes variables that are malformed, contradictory or incomplete, and says what to set; nothing falls
/// back to localhost or a world of one.
template <variable_lookup Get = decltype(process_variable)>
std::optional<launch> read_environment(const Get& given = process_variable, std::uint32_t user = ::getuid()) {
  const detail::inner_environment get{given};
  return detail::read_launch(get, user, detail::explicit_rendezvous(get));
}

}  // namespace tutti
