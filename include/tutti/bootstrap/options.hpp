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

/// Transport between ranks; the same on all of them.
enum class transport_choice : std::uint8_t {
  automatic,  ///< shared memory inside a machine, TCP between machines
  shm,        ///< shared memory only; ranks on several machines are an error
  tcp         ///< TCP only, also inside a machine
};

/// Encryption of the TCP connections between ranks; the same on all of them.
enum class encryption_choice : std::uint8_t {
  automatic,  ///< TUTTI_ENCRYPTION decides, if it is set; else none
  none,
  tls  ///< TLS 1.3 with a key derived from the secret; needs tutti::openssl and <tutti/bootstrap/tls.hpp>
};

/// Options of init(). An option that is not set comes from the environment (docs/rendezvous.md).
struct init_options {
  std::string rendezvous = {};  ///< "tcp://host:port", "file:///path", "unix:/path", "unix:@name"; `?rank=&world_size=`
  std::optional<int> rank = {};        ///< with world_size; overrides the launcher
  std::optional<int> world_size = {};  ///< with rank
  std::string job = {};                ///< a name that no other job has at the same time

  transport_choice transport = transport_choice::automatic;  ///< automatic: TUTTI_TRANSPORT decides, if it is set
  /// "eth0", an address or a host name at which other machines reach this one; else TUTTI_INTERFACE.
  std::string interface = {};
  int connections = 0;  ///< TCP connections each way between two ranks, 1 to 16; 0: TUTTI_CONNECTIONS, or 1
  exposure network = exposure::guarded;  ///< insecure: listen to other machines without a secret
  secret_source secret = {};             ///< secret with which TCP connections authenticate each other
  encryption_choice encryption = encryption_choice::automatic;  ///< of TCP connections between ranks; takes a secret

  duration timeout = std::chrono::minutes{5};        ///< deadline of each operation of the communicator
  duration join_timeout = std::chrono::seconds{60};  ///< time within which all ranks must have joined
  std::stop_token stop = {};                         ///< ends init(), which throws error{aborted} on all ranks

  /// Time after which a collective that has not ended is warned of, through set_log_handler(), and again at twice that
  /// time and so on; 0: never. Else TUTTI_STALL_WARNING (seconds), else 30 s.
  std::optional<duration> stall_warning = {};

  std::string tuning = {};  ///< file by tutti-bench --tune that selects algorithms; else TUTTI_TUNING

  /// Folder for the flight recorder of this world (docs/slow_or_stuck.md); else TUTTI_FLIGHT_DIR. Made if need be.
  std::string flight = {};
  std::string trace = {};    ///< folder for the trace of this rank's operations; else TUTTI_TRACE_DIR
  std::string metrics = {};  ///< folder for this rank's metrics; else TUTTI_METRICS_DIR
  /// Port of 127.0.0.1 at which the first rank of a machine answers with its metrics; the next ranks take the next
  /// ports. 0: TUTTI_METRICS_PORT, if it is set.
  int metrics_port = 0;
  int flight_signal = 0;  ///< signal on which the flight recorder is dumped there; else TUTTI_FLIGHT_SIGNAL

  /// Overrides os::memory_domain(), so that ranks of one machine act like those of several.
  std::string memory_domain = {};
};

}  // namespace tutti
