#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

struct options;
struct rendezvous;

/// Whether the launcher alone decides this variable, because it says who a rank is.
bool is_identity(std::string_view name) noexcept;

/// What all ranks share: the launcher's environment without any other launcher's rank variables, then `--env`.
std::vector<std::string> shared_environment(const options& given, const rendezvous& meeting);

/// CUDA_VISIBLE_DEVICES of each rank, from `--devices`; empty without that. Throws `failure`.
std::vector<std::string> devices_of_ranks(const options& given);

struct rank_descriptors {
  int secret;
  int report;    ///< where it says whom its world failed by
  int listener;  ///< -1: none
};

/// The shared part followed by what is this rank's alone; `devices` is from devices_of_ranks().
std::vector<std::string> rank_environment(std::vector<std::string> shared, int rank, const rank_descriptors& open,
                                          const std::vector<std::string>& devices);

}  // namespace tutti::launch
