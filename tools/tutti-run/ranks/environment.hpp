#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

struct options;
struct rendezvous_point;

/// The part of a job that runs on one machine.
struct share {
  int first = 0;    ///< its first rank
  int world = 0;    ///< ranks of the whole job
  int machine = 0;  ///< its number among the machines
};

/// Makes a folder the working directory of this process and of the ranks that it starts. Throws `failure`.
void enter_working_directory(const std::string& folder);

/// Returns true if the launcher alone decides this variable, because it says who a rank is.
bool is_identity(std::string_view name) noexcept;

/// Returns true if this variable of the launcher's environment is kept from the ranks, because it is of another
/// launcher.
bool is_foreign(std::string_view name) noexcept;

/// What all ranks share: the launcher's environment without any other launcher's rank variables, then `--env`.
/// `secret` is the path of the job's secret, empty for none.
std::vector<std::string> shared_environment(const options& given, const share& part, const rendezvous_point& rendezvous,
                                            const std::string& secret);

/// CUDA_VISIBLE_DEVICES of each rank, from `--devices`; empty without that. Throws `failure`.
std::vector<std::string> devices_of_ranks(const options& given);

/// The shared part followed by what is alone of the rank with this index on its machine; `report` is the descriptor at
/// which it says whom its world failed by, `devices` is from devices_of_ranks().
std::vector<std::string> rank_environment(std::vector<std::string> shared, const share& part, int index, int report,
                                          const std::vector<std::string>& devices);

}  // namespace tutti::launch
