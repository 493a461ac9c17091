#pragma once
#include <string>

#include <tutti/config.hpp>

namespace tutti {

/// What a launcher told this process about its place in the job.
struct launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;            ///< among the ranks of this machine; -1 when the launcher does not say
  int local_size = -1;            ///< ranks on this machine; -1 when the launcher does not say
  std::string job;                ///< equal on all ranks, different for other jobs; empty when the launcher has none
  std::string rendezvous;         ///< a URL for parse_rendezvous(); empty only for a world of one
  std::string source;             ///< the variables that gave rank and size, for messages
  std::string rendezvous_source;  ///< the variables that gave the rendezvous, for messages
};

}  // namespace tutti
