#pragma once
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch.hpp>
#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/text.hpp>

namespace tutti::detail {

/// Names of the variables in which one launcher passes ranks.
struct launch_variables {
  launcher by;
  const char* command;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
};

inline constexpr launch_variables tutti_variables{launcher::tutti_run, "set by hand",      "TUTTI_RANK",
                                                  "TUTTI_WORLD_SIZE",  "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE"};
inline constexpr launch_variables torchrun_variables{launcher::torchrun, "torchrun",   "RANK",
                                                     "WORLD_SIZE",       "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
inline constexpr launch_variables mpi_variables[] = {
    {launcher::open_mpi, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {launcher::mpich, "MPICH's mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {launcher::horovod, "horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"},
};

/// Rank and world size as one launcher gives them; converts to false if it gives none.
struct launch_claim {
  launch_variables names{};
  int rank = 0;
  int world_size = 0;
  int local_rank = -1;
  int local_size = -1;

  explicit operator bool() const noexcept { return world_size > 0; }
};

/// Returns `RANK="3"`, for messages.
inline std::string show(std::string_view name, std::string_view value) {
  return std::string(name) + "=" + quoted(value);
}
inline std::string show(std::string_view name, int value) { return show(name, std::to_string(value)); }
inline std::string show(const launch_claim& c) {
  return show(c.names.rank, c.rank) + " and " + show(c.names.world_size, c.world_size) + " (" + c.names.command + ")";
}

/// Returns the number in a variable; nullopt if it is not set. Throws usage_error if it is not a number of that range.
std::optional<int> read_number(const variable_lookup auto& get, const char* name, int least,
                               int most = (std::numeric_limits<int>::max)()) {
  const auto text = get(name);
  if (!text) return std::nullopt;
  const auto value = parse_decimal<int>(*text);
  if (!value || *value < least || *value > most)
    throw usage_error("environment: " + show(name, *text) + " is not a number from " + std::to_string(least) + " to " +
                      std::to_string(most) + "; set it right, or unset it if no launcher is meant");
  return value;
}

/// Throws usage_error if the numbers cannot describe one rank of one world.
inline void check_claim(const launch_claim& c) {
  const auto refuse = [&](const std::string& what) {
    throw usage_error("environment: " + what + " (" + c.names.command +
                      "); correct what sets them, or set TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_RENDEZVOUS");
  };
  const std::string world = show(c.names.world_size, c.world_size);
  if (c.rank >= c.world_size) refuse(show(c.names.rank, c.rank) + " is not below " + world);
  if (c.local_size > c.world_size) refuse(show(c.names.local_size, c.local_size) + " is more than " + world);
  if (c.local_size >= 0 && c.local_rank >= c.local_size)
    refuse(show(c.names.local_rank, c.local_rank) + " is not below " + show(c.names.local_size, c.local_size));
}

/// Returns the claim in a launcher's variables; an empty one if rank or world size is not set.
launch_claim read_claim(const variable_lookup auto& get, const launch_variables& names) {
  const auto rank = read_number(get, names.rank, 0);
  const auto size = read_number(get, names.world_size, 1);
  if (!rank || !size) return {};
  launch_claim c{names, *rank, *size};
  c.local_rank = read_number(get, names.local_rank, 0).value_or(-1);
  c.local_size = read_number(get, names.local_size, 1).value_or(-1);
  check_claim(c);
  return c;
}

/// Throws usage_error for a rank without a world size, or the reverse.
void refuse_half(const variable_lookup auto& get, const launch_variables& names) {
  const auto rank = get(names.rank), size = get(names.world_size);
  if (rank.has_value() == size.has_value()) return;
  throw usage_error("environment: " + (rank ? show(names.rank, *rank) : show(names.world_size, *size)) + " without " +
                    (rank ? names.world_size : names.rank) + "; set both for every process, or neither to run alone");
}

}  // namespace tutti::detail
