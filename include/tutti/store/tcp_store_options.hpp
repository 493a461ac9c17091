#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include <tutti/core/deadline.hpp>
#include <tutti/os/socket_options.hpp>
#include <tutti/store/key_value_table.hpp>
#include <tutti/wire/handshake.hpp>
#include <tutti/wire/job_id.hpp>
#include <tutti/wire/secret.hpp>

namespace tutti {

/// Whether a listener that strangers can reach may do without a secret.
enum class exposure : std::uint8_t {
  guarded,  ///< no: refuse to listen
  insecure  ///< yes: everybody who can reach the address can join and read
};

/// Who a participant of a tcp_store is, and what all of them must agree on.
struct tcp_store_options {
  int rank = 0;
  int world = 1;                            ///< 0 at a host that serves worlds of any size
  wire::job_id job{};                       ///< the same for all ranks of a job
  std::uint64_t generation = 0;             ///< the same for all ranks; another one after each restart
  std::optional<wire::secret> secret = {};  ///< needed between machines; not used over Unix sockets
  exposure network = exposure::guarded;
  duration timeout = std::chrono::seconds{60};           ///< of every call that is given no deadline
  deadline until = deadline::max();                      ///< no such call lasts longer than a second beyond it
  duration handshake_timeout = std::chrono::seconds{5};  ///< at the host: how long a stranger may take to prove himself
  int expected = 0;       ///< at the host: how many may come at once, if more than `world`
  store_limits limits{};  ///< at the host
  bool any_job = false;   ///< at the host: ranks of other jobs are let in, too, and must find out by themselves
};

namespace detail {

// Rendezvous outlives a hiccup of the network that a collective would not.
inline constexpr os::tcp_options store_tcp_options{
    true, {std::chrono::seconds{10}, std::chrono::seconds{5}, 3}, std::chrono::milliseconds{25000}, 0, 0};

inline wire::handshake_terms handshake_terms_of(const tcp_store_options& o, wire::proof how) noexcept {
  wire::handshake_terms t;
  t.how = how;
  t.key = o.secret ? &*o.secret : nullptr;
  t.role = wire::connection_role::store_client;
  t.rank = static_cast<std::uint32_t>(o.rank);
  t.world = static_cast<std::uint32_t>(o.world);
  t.generation = o.generation;
  t.job = o.job;
  t.any_job = o.any_job;
  return t;
}

}  // namespace detail

}  // namespace tutti
