#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include <tutti/bootstrap/secret.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/store/exposure.hpp>

namespace tutti {

/// What moves bytes between ranks; the same on all of them.
enum class transport_choice : std::uint8_t {
  automatic,  ///< shared memory inside a machine, TCP between machines
  shm,        ///< shared memory only; ranks on several machines are an error
  tcp         ///< TCP only, also inside a machine
};

/// How init() finds the other ranks; whatever is not said here comes from the environment (docs/rendezvous.md).
struct init_options {
  std::string rendezvous = {};  ///< "tcp://host:port", "file:///path", "unix:/path", "unix:@name"; `?rank=&world_size=`
  std::optional<int> rank = {};        ///< with world_size, instead of what the launcher says
  std::optional<int> world_size = {};  ///< with rank
  std::string job = {};                ///< a name that no other job has at the same time

  transport_choice transport = transport_choice::automatic;  ///< automatic: TUTTI_TRANSPORT, if that is set
  std::string interface =
      {};               ///< "eth0", an address or a host name at which other machines reach this one; TUTTI_INTERFACE
  int connections = 0;  ///< TCP connections each way between two ranks, 1 to 16; 0: TUTTI_CONNECTIONS, or 1
  exposure network = exposure::guarded;  ///< insecure: listen to other machines without a secret
  secret_source secret = {};             ///< what TCP connections prove to each other

  duration timeout = std::chrono::minutes{5};        ///< of each operation of the communicator
  duration join_timeout = std::chrono::seconds{60};  ///< within which all ranks must have come
  std::stop_token stop = {};                         ///< ends the joining; init() throws error{aborted} on all ranks

  std::string tuning = {};  ///< a file by tutti-bench --tune that says which algorithms are taken; TUTTI_TUNING

  std::string memory_domain =
      {};  ///< instead of os::memory_domain(): lets ranks of one machine act as those of several
};

}  // namespace tutti
