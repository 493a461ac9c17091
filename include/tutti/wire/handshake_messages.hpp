#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/wire/bytes.hpp>
#include <tutti/wire/hmac.hpp>
#include <tutti/wire/job_id.hpp>
#include <tutti/wire/secret.hpp>

namespace tutti::wire {

inline constexpr std::uint16_t handshake_version = 11;

/// The purpose of a connection. A claim for one purpose is not valid for another.
enum class connection_role : std::uint8_t { store_client = 1, peer = 2, encrypted_peer = 3 };

/// The kind of proof that both sides give.
enum class proof : std::uint8_t {
  job_id = 0,  ///< none; the job's id filters accidents
  hmac = 1,    ///< both prove that they know the job's secret
  kernel = 2   ///< a Unix socket: the kernel knows the user, whom the caller checks
};

/// The reason why a handshake ended without a connection. Values up to `encryption` are sent.
enum class refusal : std::uint8_t {
  none = 0,
  authentication = 1,  ///< the other side did not prove that it knows the secret
  version = 2,
  job = 3,
  role = 4,
  world = 5,
  generation = 6,
  rank = 7,         ///< a rank outside of the world
  target = 8,       ///< the other side wants to reach another rank
  connections = 9,  ///< two ranks have different numbers of connections
  encryption = 10,  ///< one of two ranks encrypts its connections
  not_our_protocol = 32,
  proof_wanted,   ///< the other side asks for a secret and this one has none
  proof_missing,  ///< this side has a secret and the other one does not ask for it
  no_provider,
  no_randomness
};

inline constexpr std::uint32_t no_rank = 0xffffffff;

/// The connecting side's statement about itself; the MAC covers all of it.
struct connection_claim {
  connection_role role = connection_role::store_client;
  std::uint32_t rank = 0;
  std::uint32_t target = no_rank;  ///< the rank it wants to reach; no_rank for a store
  std::uint32_t world = 0;
  std::uint64_t generation = 0;
  std::uint16_t connections = 1;  ///< number that each of two peers opens to the other
  std::uint16_t connection = 0;   ///< index of this one
  job_id job{};
};

namespace detail {

// Each side begins with eight bytes of magic and the version, in every version of the protocol, so that two versions
// can recognize each other. The magic ends as PNG's does, to detect converted line ends.
//
// The client sends its claim at once, the server its hello; with a secret the client then sends its proof, which covers
// both; the server replies. A claim ends with the early proof, a MAC over the claim alone: it shows a server that the
// client has the secret before the server has spent a round trip on it, but may have been replayed, so it decides only
// which connections a full server closes.
inline constexpr std::array<std::byte, 8> magic{std::byte{'t'}, std::byte{'u'},  std::byte{'t'},  std::byte{'t'},
                                                std::byte{'i'}, std::byte{'\r'}, std::byte{'\n'}, std::byte{0}};
inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t preamble_bytes = 12;                             // magic, version, proof, zero
inline constexpr std::size_t hello_bytes = preamble_bytes + 4 + nonce_bytes;  // … zeros, nonce
inline constexpr std::size_t claim_body_bytes = preamble_bytes + 4 + 4 + 4 + 8 + 4 + 4 + 16 + nonce_bytes;
inline constexpr std::size_t claim_bytes = claim_body_bytes + 32;
inline constexpr std::size_t proof_bytes = 32;
inline constexpr std::size_t reply_body_bytes = preamble_bytes + 4 + 4 + 4 + 8;
inline constexpr std::size_t reply_bytes = reply_body_bytes + 32;
static_assert(claim_bytes + proof_bytes == 152,
              "a connection without the secret is read no further than SECURITY.md says");

using nonce = std::array<std::byte, nonce_bytes>;

inline void put_preamble(byte_writer& w, proof p) noexcept {
  w.bytes(magic).u16(handshake_version).u8(static_cast<std::uint8_t>(p)).u8(0);
}

inline void encode_hello(std::span<std::byte, hello_bytes> out, proof p, const nonce& server) noexcept {
  byte_writer w{out};
  put_preamble(w, p);
  w.zeros(4).bytes(server);
}

inline void encode_claim_body(std::span<std::byte, claim_body_bytes> out, proof p, const connection_claim& c,
                              const nonce& client) noexcept {
  byte_writer w{out};
  put_preamble(w, p);
  w.u32(static_cast<std::uint32_t>(c.role)).u32(c.rank).u32(c.target).u64(c.generation).u32(c.world);
  w.u16(c.connections).u16(c.connection).bytes(c.job.bytes).bytes(client);
}

inline connection_claim decode_claim_body(std::span<const std::byte, claim_body_bytes> in) noexcept {
  byte_reader r{in};
  r.skip(preamble_bytes);
  connection_claim c;
  const std::uint32_t role = r.u32();
  c.role = role <= 3 ? static_cast<connection_role>(role) : connection_role{};
  c.rank = r.u32();
  c.target = r.u32();
  c.generation = r.u64();
  c.world = r.u32();
  c.connections = r.u16();
  c.connection = r.u16();
  r.copy_to(std::span{c.job.bytes});
  return c;
}

/// Computes the MAC of one direction over all messages so far. The labels keep a message of one direction from being
/// replayed as one of the other. Returns false without a provider of HMACs.
template <std::size_t LabelBytes>
bool transcript_mac(const secret& key, const char (&label)[LabelBytes], std::span<const std::byte> hello,
                    std::span<const std::byte> claim, std::span<const std::byte> reply, mac& out) noexcept {
  const hmac_fn hmac = hmac_provider.load();
  if (hmac == nullptr) return false;
  std::array<std::byte, 32 + hello_bytes + claim_bytes + reply_body_bytes> transcript;
  static_assert(LabelBytes <= 32);
  byte_writer w{transcript};
  w.bytes(std::as_bytes(std::span{label})).zeros(32 - LabelBytes).bytes(hello).bytes(claim).bytes(reply);
  return w.ok() && hmac(key.bytes, w.written(), out);
}

}  // namespace detail

}  // namespace tutti::wire
