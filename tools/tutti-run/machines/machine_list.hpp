#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

/// A machine that is to run ranks.
struct machine_slots {
  std::string host;  ///< as ssh takes it: a name, an address or an alias, maybe with "user@" before it
  int slots = 0;     ///< ranks that it takes; 0: not said

  friend bool operator==(const machine_slots&, const machine_slots&) = default;
};

/// Reads "node1:4,node2:4"; IPv6 addresses are in brackets. Throws `failure` with status 2.
std::vector<machine_slots> parse_hosts(std::string_view list);

/// Reads the lines of a host file: "node1 slots=4" as for Open MPI, or "node1:4" as for Horovod and MPICH. What follows
/// a '#' is a comment. Throws `failure` with status 2 that names the line.
std::vector<machine_slots> parse_hostfile(std::string_view content, const std::string& path);
std::vector<machine_slots> read_hostfile(const std::string& path);

/// Gives this machine, `here`, one name in the list: the first of those that it has there.
void unite_names_of_here(std::vector<machine_slots>& list, std::string_view here);

/// Gives each machine its ranks, in the order of the list: `each` (1 if that is 0) where a machine has no number, and
/// `ranks` in all (0: as many as there are places). A machine that stands there twice has the places of both; one that
/// gets no rank is left out. Throws `failure` with status 2 if there are fewer places than ranks.
std::vector<machine_slots> place_ranks(const std::vector<machine_slots>& list, int ranks, int each);

/// The name of a machine in messages: without the user.
std::string name_of(const machine_slots& machine);

/// Returns true for the machine `here` itself, which needs no ssh.
bool is_here(const machine_slots& machine, std::string_view here);

}  // namespace tutti::launch
