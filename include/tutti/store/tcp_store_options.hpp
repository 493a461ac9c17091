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

/// Who a participant of a tcp_store is, and what all of them must agree on.
struct tcp_store_options {
  int rank = 0;
  int world = 1;                            ///< 0 at a host that serves worlds of any size
  wire::job_id job{};                       ///< the same for all ranks of a job
  std::uint64_t generation = 0;             ///< the same for all ranks; another one after each restart
  std::optional<wire::secret> secret = {};  ///< needed between machines; not used over Unix sockets
  exposure network = exposure::guarded;
  duration timeout = std::chrono::seconds{60};           ///< of every call that is given no deadline
  deadline until = (deadline::max)();                    ///< no such call lasts longer than a second beyond it
  duration handshake_timeout = std::chrono::seconds{5};  ///< at the host: how long a stranger may take to prove himself
  int expected = 0;       ///< at the host: how many may come at once, if more than `world`
  store_limits limits{};  ///< at the host
  bool any_job = false;   ///< at the host: ranks of other jobs are let in, too, and must find out by themselves
};

}  // namespace tutti
