#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include <tutti/core/deadline.hpp>
#include <tutti/store/exposure.hpp>
#include <tutti/store/store_limits.hpp>
#include <tutti/wire/job_id.hpp>
#include <tutti/wire/secret.hpp>

namespace tutti {

/// The options of a tcp_store: this rank, the values that all ranks must have alike, timeouts and limits.
struct tcp_store_options {
  int rank = 0;
  int world = 1;                            ///< world size; 0 at a host: any size is accepted
  wire::job_id job{};                       ///< equal on all ranks of a job
  std::uint64_t generation = 0;             ///< equal on all ranks; another number after each restart
  std::optional<wire::secret> secret = {};  ///< equal on all ranks; needed between machines, unused on Unix sockets
  exposure network = exposure::guarded;
  duration timeout = std::chrono::seconds{60};           ///< of a client's calls without a deadline of their own
  deadline until = (deadline::max)();                    ///< of these calls, too; each has at least a second
  duration handshake_timeout = std::chrono::seconds{5};  ///< host: of a new connection's handshake
  int expected = 0;                                      ///< host: ranks that may connect at once, if more than `world`
  store_limits limits{};                                 ///< host: capacity of the table
  bool any_job = false;  ///< host: also accepts ranks of other jobs, which must detect the mix-up themselves
};

}  // namespace tutti
