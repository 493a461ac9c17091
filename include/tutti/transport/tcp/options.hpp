#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/wire/handshake.hpp>

namespace tutti {

/// Job that the connections between ranks belong to; the same on all ranks.
struct tcp_job {
  wire::job_id id{};
  std::uint64_t generation = 0;          ///< number of this start of the job: ranks of another are refused
  std::optional<wire::secret> secret{};  ///< every connection has to prove it; none: only the id is compared
  bool encrypted = false;                ///< connections are secure channels, with keys derived from the secret

  /// Returns the terms with which a connection to `target` begins; they point into this object.
  [[nodiscard]] wire::handshake_terms terms(int rank, int world, std::uint32_t target = wire::no_rank) const noexcept {
    wire::handshake_terms t;
    t.how = secret ? wire::proof::hmac : wire::proof::job_id;
    t.key = secret ? &*secret : nullptr;
    t.role = encrypted ? wire::connection_role::encrypted_peer : wire::connection_role::peer;
    t.rank = static_cast<std::uint32_t>(rank);
    t.target = target;
    t.world = static_cast<std::uint32_t>(world);
    t.generation = generation;
    t.job = id;
    return t;
  }
};

/// Time limits of TCP connections between ranks, and their number; the defaults suit a network of one site.
struct tcp_options {
  /// Number of connections that each of two ranks opens to the other, 1 to most_connections, the same on all ranks.
  /// With several, messages travel in stripes of 64 KiB in turn, at the pace of the slowest: for links that limit each
  /// connection. Each takes a descriptor at both ends, and up to buffer_bytes of the kernel's memory there.
  int connections = 1;
  static constexpr int most_connections = 16;

  duration connect = std::chrono::seconds{10};        ///< a peer that cannot be connected to by then is lost
  duration silence = std::chrono::seconds{3};         ///< a machine that acknowledges nothing for this time is lost
  duration handshake = std::chrono::seconds{5};       ///< a connection that has not proved itself by then is closed
  duration grace = std::chrono::milliseconds{40};     ///< a broken connection fails then, unless another cause shows
  duration goodbye = std::chrono::milliseconds{250};  ///< leaving takes no longer; a rank that is busy for longer may
  ///< take one that left for dead, if the two had never met
  int buffer_bytes = 4 << 20;  ///< of a socket, if the system allows as much; 0: the kernel tunes it
};

namespace detail {

/// Returns `o`; throws usage_error if its number of connections is out of range.
inline const tcp_options& checked(const tcp_options& o) {
  constexpr int most = tcp_options::most_connections;
  if (o.connections >= 1 && o.connections <= most) return o;
  throw usage_error("tcp_options::connections is " + std::to_string(o.connections) + ": two ranks open 1 to " +
                    std::to_string(most) + " of them to each other");
}

}  // namespace detail

}  // namespace tutti
