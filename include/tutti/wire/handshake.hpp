#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tutti/core/status.hpp>
#include <tutti/wire/handshake_messages.hpp>
#include <tutti/wire/random.hpp>

/// The mutual challenge and response with which every connection begins. Messages of fixed size; the first two cross:
///
///     client -> server   claim   magic, version, own identity and target, a fresh nonce, MAC("tutti early", claim)
///     server -> client   hello   magic, version, kind of proof, a fresh nonce
///     client -> server   proof   MAC("tutti client", hello, claim); not sent without a secret
///     server -> client   reply   magic, version, verdict, own identity, MAC("tutti server", hello, claim, reply)
///
/// The early proof, at the end of the claim, decides only which connections a full server closes; without a secret this
/// MAC and that of the reply are zeros.
/// server_handshake and client_handshake turn received bytes into bytes to send; they know no sockets, never allocate
/// and never throw.
namespace tutti::wire {

enum class handshake_state : std::uint8_t {
  running,
  accepted,  ///< once output() is sent, the connection belongs to the protocol above
  refused    ///< send output() if that is possible at once, and close
};

/// The identity and the demands of one side. `key` must outlive the handshake.
struct handshake_terms {
  proof how = proof::job_id;
  const secret* key = nullptr;  ///< for proof::hmac
  connection_role role = connection_role::store_client;
  std::uint32_t rank = no_rank;    ///< of this side; no_rank for a store that belongs to no rank
  std::uint32_t target = no_rank;  ///< the rank to be reached; on the connecting side only
  std::uint32_t world = 0;         ///< 0 for a server of any world size
  std::uint64_t generation = 0;
  std::uint16_t connections = 1;  ///< number that each side opens to the other
  std::uint16_t connection = 0;   ///< index of this one; on the connecting side only
  job_id job{};
  bool any_job = false;  ///< a server accepts peers of other jobs, too, to report the mix-up
};

/// The other side's identity as far as known after a refusal; zero if it did not send it or proved nothing.
struct handshake_counterpart {
  std::uint16_t version = 0;
  std::uint32_t rank = no_rank;
  std::uint32_t world = 0;
  std::uint64_t generation = 0;
  std::uint32_t connections = 0;
};

/// Returns the errc of a refusal.
[[nodiscard]] constexpr errc error_of(refusal why) noexcept {
  switch (why) {
    case refusal::none:
      return errc::ok;
    case refusal::authentication:
    case refusal::proof_wanted:
    case refusal::proof_missing:
      return errc::auth_failed;
    case refusal::version:
    case refusal::not_our_protocol:
      return errc::protocol;
    case refusal::no_provider:
      return errc::unsupported;
    case refusal::no_randomness:
      return errc::system;
    case refusal::job:
    case refusal::role:
    case refusal::world:
    case refusal::generation:
    case refusal::rank:
    case refusal::target:
    case refusal::connections:
    case refusal::encryption:
      return errc::rendezvous;
  }
  return errc::protocol;
}

/// Returns the rest of a sentence that begins "the connection to … failed: ": the difference between `ours` and
/// `theirs`, and the remedy.
[[nodiscard]] inline std::string explain(refusal why, const handshake_terms& ours,
                                         const handshake_counterpart& theirs) {
  const auto both = [](const char* what, std::uint64_t here, std::uint64_t there) {
    return std::string{what} + " differs: " + std::to_string(here) + " here, " + std::to_string(there) + " there";
  };
  switch (why) {
    case refusal::none:
      return "nothing was refused";
    case refusal::authentication:
      return "authentication failed: the two sides do not have the same secret of the job";
    case refusal::version:
      return both("the version of the protocol", handshake_version, theirs.version) +
             "; all ranks must be built with the same version of tutti";
    case refusal::job:
      return "the other side belongs to another job; is an old one still running at that address?";
    case refusal::role:
      return "the other side serves something else (a store where a rank was expected, or the reverse)";
    case refusal::world:
      return both("the world size", ours.world, theirs.world) + "; all ranks must be started with the same one";
    case refusal::generation:
      return both("the generation", ours.generation, theirs.generation) + "; one side belongs to an earlier start";
    case refusal::rank: {
      const bool mine = ours.rank != no_rank && ours.rank >= ours.world;
      return "rank " + std::to_string(mine ? ours.rank : theirs.rank) + " is not in a world of " +
             std::to_string(mine ? ours.world : theirs.world);
    }
    case refusal::target:
      return "it is another rank (" + std::to_string(theirs.rank) + ") than the one that was looked for";
    case refusal::connections:
      return both("the number of connections that two ranks open to each other", ours.connections, theirs.connections) +
             "; set TUTTI_CONNECTIONS, init_options::connections or tcp_options::connections alike on all ranks";
    case refusal::encryption:
      return "one side encrypts its connections and the other does not; set TUTTI_ENCRYPTION, init_options::encryption "
             "or tcp_job::encrypted alike on all ranks";
    case refusal::not_our_protocol:
      return "the other side does not speak tutti's protocol; is another program listening at that address?";
    case refusal::proof_wanted:
      return "the other side asks for the job's secret, but this process has none (TUTTI_SECRET_FD, TUTTI_SECRET_FILE)";
    case refusal::proof_missing:
      return "this process has the job's secret, but the other side does not ask for it; give it to all ranks";
    case refusal::no_provider:
      return "nothing in this program computes HMAC-SHA256 (link tutti::openssl)";
    case refusal::no_randomness:
      return "the kernel gave no random bytes";
  }
  return "refused";
}

}  // namespace tutti::wire
