#include "tutti-run/ranks/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "tutti-run/options.hpp"
#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/devices.hpp"
#include "tutti-run/rendezvous.hpp"

namespace tutti::launch {
namespace {

using names = std::string_view;

constexpr std::array identity{names{"RANK"},
                              names{"LOCAL_RANK"},
                              names{"WORLD_SIZE"},
                              names{"GROUP_RANK"},
                              names{"LOCAL_WORLD_SIZE"},
                              names{"TUTTI_RANK"},
                              names{"TUTTI_WORLD_SIZE"},
                              names{"TUTTI_LOCAL_RANK"},
                              names{"TUTTI_LOCAL_SIZE"},
                              names{"TUTTI_JOB"},
                              names{"TUTTI_SECRET_FD"},
                              names{"TUTTI_REPORT_FD"},
                              names{"TUTTI_RENDEZVOUS"}};

// A rank started inside another launcher's rank must not mistake that one's place for its own.
constexpr std::array foreign{
    names{"MASTER_ADDR"},     names{"MASTER_PORT"},     names{"GROUP_WORLD_SIZE"},   names{"ROLE_RANK"},
    names{"ROLE_NAME"},       names{"ROLE_WORLD_SIZE"}, names{"OMPI_UNIVERSE_SIZE"}, names{"MPI_LOCALRANKID"},
    names{"MPI_LOCALNRANKS"}, names{"SLURM_PROCID"},    names{"SLURM_LOCALID"},      names{"SLURM_NTASKS"},
    names{"SLURM_NPROCS"},    names{"SLURM_NODEID"},    names{"SLURM_TASK_PID"},     names{"SLURM_GTIDS"}};
// A step of Slurm, too: a container or another launcher may have left half of its variables.
constexpr std::array foreign_families{names{"OMPI_COMM_WORLD_"}, names{"PMI_"},     names{"PMIX_"},
                                      names{"MV2_COMM_WORLD_"},  names{"HOROVOD_"}, names{"TORCHELASTIC_"},
                                      names{"SLURM_STEP"}};

std::string_view name_of(std::string_view variable) noexcept { return variable.substr(0, variable.find('=')); }

void set(std::vector<std::string>& variables, std::string variable) {
  std::erase_if(variables, [&](const std::string& other) { return name_of(other) == name_of(variable); });
  variables.push_back(std::move(variable));
}

}  // namespace

void enter_working_directory(const std::string& folder) {
  if (::chdir(folder.c_str()) != 0)
    throw failure(1, text("cannot enter the working directory ", folder, ": ", std::strerror(errno),
                          "; name one that every machine of the job has with --wdir"));
  ::setenv("PWD", folder.c_str(), 1);
}

bool is_identity(std::string_view name) noexcept { return std::ranges::find(identity, name) != identity.end(); }

bool is_foreign(std::string_view name) noexcept {
  return std::ranges::find(foreign, name) != foreign.end() ||
         std::ranges::any_of(foreign_families, [&](names family) { return name.starts_with(family); });
}

std::vector<std::string> shared_environment(const options& given, const share& part, const rendezvous_point& rendezvous,
                                            const std::string& secret) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable)
    if (const auto name = name_of(*variable); !is_identity(name) && !is_foreign(name)) result.emplace_back(*variable);
  result.push_back(text("WORLD_SIZE=", part.world));
  result.push_back(text("LOCAL_WORLD_SIZE=", given.ranks));
  result.push_back(text("GROUP_RANK=", part.machine));
  if (!rendezvous.host.empty()) {
    result.push_back(text("MASTER_ADDR=", rendezvous.host));
    result.push_back(text("MASTER_PORT=", rendezvous.port));
  }
  if (!rendezvous.job.empty()) result.push_back(text("TUTTI_JOB=", rendezvous.job));
  result.push_back(text("TUTTI_RENDEZVOUS=", rendezvous.url));
  if (!secret.empty()) set(result, text("TUTTI_SECRET_FILE=", secret));
  for (const auto& variable : given.environment) set(result, variable);
  return result;
}

std::vector<std::string> devices_of_ranks(const options& given) {
  if (given.devices.empty()) return {};
  std::optional<std::string> inherited;
  if (const char* value = std::getenv("CUDA_VISIBLE_DEVICES")) inherited = value;
  for (const auto& variable : given.environment)
    if (name_of(variable) == "CUDA_VISIBLE_DEVICES") inherited = variable.substr(variable.find('=') + 1);
  return visible_devices(given.devices, given.ranks, inherited ? &*inherited : nullptr);
}

std::vector<std::string> rank_environment(std::vector<std::string> shared, const share& part, int index, int report,
                                          const std::vector<std::string>& devices) {
  shared.push_back(text("RANK=", part.first + index));
  shared.push_back(text("LOCAL_RANK=", index));
  shared.push_back(text("TUTTI_REPORT_FD=", report));
  if (!devices.empty()) set(shared, text("CUDA_VISIBLE_DEVICES=", devices[static_cast<std::size_t>(index)]));
  return shared;
}

}  // namespace tutti::launch
