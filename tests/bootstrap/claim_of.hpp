#pragma once
#include <string>
#include <utility>

#include <tutti/bootstrap/rendezvous/claim.hpp>

namespace tutti_test {

/// The claim of a process that does not exist: without a start time nobody looks whether it lives.
inline tutti::roll_call_claim claim_of(int rank, int world, int pid, std::string domain = "m") {
  auto c = tutti::roll_call_claim::of_this_process(rank, world, std::move(domain));
  c.pid = pid;
  c.start_time = 0;
  c.host = "host" + c.memory_domain;
  return c;
}

}  // namespace tutti_test
