#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <tutti/wire/constant_time.hpp>
#include <tutti/wire/handshake.hpp>

namespace tutti::wire {

/// The accepting side of a handshake: bytes in, bytes out. It takes 152 bytes at most and gives up at the first wrong
/// one. Every peer without proof gets the same answer, whatever it did wrong.
class server_handshake {
 public:
  explicit server_handshake(const handshake_terms& terms, random_fn random = &kernel_random) noexcept : terms_(terms) {
    detail::nonce n{};
    if (!random(n)) {
      refuse(refusal::no_randomness);
    } else if (terms_.how == proof::hmac && (terms_.key == nullptr || hmac_provider.load() == nullptr)) {
      refuse(refusal::no_provider);
    } else {
      detail::encode_hello(hello_, terms_.how, n);
      output_ = hello_;
    }
  }
  server_handshake(const server_handshake&) = delete;  // output_ points into the object
  server_handshake& operator=(const server_handshake&) = delete;

  [[nodiscard]] handshake_state state() const noexcept { return state_; }
  [[nodiscard]] refusal why() const noexcept { return why_; }
  [[nodiscard]] const handshake_counterpart& counterpart() const noexcept { return theirs_; }

  /// Returns true once the other side has sent a MAC that takes the secret, or a copy of one: reason enough to close a
  /// connection without one instead of this one, and no reason to accept it. Always false without a secret.
  [[nodiscard]] bool has_early_proof() const noexcept { return early_; }

  /// Returns the other side's claim; proven if the state is accepted.
  [[nodiscard]] const connection_claim& claim() const noexcept { return claim_; }

  /// Computes a key that both sides of this accepted connection know, and nobody without the secret. Returns false if
  /// there is no secret.
  [[nodiscard]] bool channel_key(mac& out) const noexcept {
    return terms_.key != nullptr &&
           detail::transcript_mac(*terms_.key, "tutti channel", hello_, claim_as_sent(), {}, out);
  }

  /// Returns the maximal number of bytes to read before the next receive().
  [[nodiscard]] std::size_t wanted() const noexcept {
    return state_ == handshake_state::running ? expected_bytes() - received_ : 0;
  }

  /// Returns the bytes to send now; sent(n) removes the first n.
  [[nodiscard]] std::span<const std::byte> output() const noexcept { return output_; }
  void sent(std::size_t bytes) noexcept { output_ = output_.subspan((std::min)(bytes, output_.size())); }

  void receive(std::span<const std::byte> in) noexcept {
    if (state_ != handshake_state::running || in.empty()) return;
    if (in.size() > wanted()) return refuse(refusal::not_our_protocol);
    std::memcpy(said_.data() + received_, in.data(), in.size());
    const std::size_t before = std::exchange(received_, received_ + in.size());

    const std::size_t known = (std::min)(received_, detail::magic.size());
    if (!std::equal(detail::magic.begin(), detail::magic.begin() + static_cast<std::ptrdiff_t>(known), said_.begin())) {
      return refuse(refusal::not_our_protocol);
    }
    if (received_ < detail::preamble_bytes) return;
    byte_reader r{std::span{said_}.subspan(detail::magic.size())};
    theirs_.version = r.u16();
    if (theirs_.version != handshake_version) return refuse(refusal::version);
    if (r.u8() != static_cast<std::uint8_t>(terms_.how)) return refuse(refusal::authentication);
    if (before < detail::claim_bytes && received_ >= detail::claim_bytes && terms_.how == proof::hmac) look_early();
    if (received_ == expected_bytes()) judge();
  }

 private:
  [[nodiscard]] std::size_t expected_bytes() const noexcept {
    return terms_.how == proof::hmac ? said_.size() : detail::claim_bytes;
  }
  [[nodiscard]] std::span<const std::byte, detail::claim_bytes> claim_as_sent() const noexcept {
    return std::span{said_}.first<detail::claim_bytes>();
  }

  /// A wrong early proof is refused with the proof: a reply before it could be lost, as the proof would then arrive at
  /// a closed connection.
  void look_early() noexcept {
    const auto claim = claim_as_sent();
    mac expected{};
    early_ =
        detail::transcript_mac(*terms_.key, "tutti early", {}, claim.first<detail::claim_body_bytes>(), {}, expected) &&
        equal_in_constant_time(expected, claim.last<mac{}.size()>());
  }

  void judge() noexcept {
    const auto body = claim_as_sent().first<detail::claim_body_bytes>();
    if (terms_.how == proof::hmac) {
      mac expected{};
      if (!detail::transcript_mac(*terms_.key, "tutti client", hello_, claim_as_sent(), {}, expected)) {
        return refuse(refusal::no_provider);
      }
      const auto shown = std::span<const std::byte>{said_}.last<detail::proof_bytes>();
      if (!equal_in_constant_time(expected, shown)) return refuse(refusal::authentication);
      proven_ = true;
    }
    claim_ = detail::decode_claim_body(body);
    if (!terms_.any_job && !equal_in_constant_time(claim_.job.bytes, terms_.job.bytes)) return refuse(refusal::job);
    proven_ = true;
    theirs_ = {handshake_version, claim_.rank, claim_.world, claim_.generation, claim_.connections};
    if (claim_.role != terms_.role) {
      const bool from_store = claim_.role < connection_role::peer || terms_.role < connection_role::peer;
      return refuse(from_store ? refusal::role : refusal::encryption);
    }
    if (claim_.generation != terms_.generation) return refuse(refusal::generation);
    if (terms_.world != 0 && claim_.world != terms_.world) return refuse(refusal::world);
    if (claim_.rank >= claim_.world) return refuse(refusal::rank);
    if (claim_.target != terms_.rank && claim_.target != no_rank) return refuse(refusal::target);
    if (claim_.connections != terms_.connections || claim_.connection >= claim_.connections)
      return refuse(refusal::connections);
    finish(handshake_state::accepted, refusal::none);
  }

  void refuse(refusal why) noexcept { finish(handshake_state::refused, why); }

  void finish(handshake_state state, refusal why) noexcept {
    state_ = state;
    why_ = why;
    // A peer that is not of the job learns nothing: all reasons look the same, except those that help a peer of another
    // version or job.
    refusal told = why;
    if (!proven_ && why != refusal::version && why != refusal::job) told = refusal::authentication;
    byte_writer w{reply_};
    w.bytes(detail::magic).u16(handshake_version).u8(static_cast<std::uint8_t>(terms_.how));
    w.u8(static_cast<std::uint8_t>(told));
    if (proven_) {
      w.u32(terms_.world).u32(terms_.rank).u32(terms_.connections).u64(terms_.generation);
    } else {
      w.zeros(20);
    }
    mac proof_of_ours{};
    if (proven_ && terms_.how == proof::hmac) {
      const auto said = w.written();
      if (!detail::transcript_mac(*terms_.key, "tutti server", hello_, claim_as_sent(), said, proof_of_ours)) {
        state_ = handshake_state::refused;
        why_ = refusal::no_provider;
      }
    }
    w.bytes(proof_of_ours);
    output_ = reply_;
  }

  handshake_terms terms_;
  handshake_state state_ = handshake_state::running;
  refusal why_ = refusal::none;
  bool early_ = false;
  bool proven_ = false;
  handshake_counterpart theirs_;
  connection_claim claim_;
  std::size_t received_ = 0;
  std::span<const std::byte> output_;
  std::array<std::byte, detail::hello_bytes> hello_{};
  std::array<std::byte, detail::claim_bytes + detail::proof_bytes> said_{};
  std::array<std::byte, detail::reply_bytes> reply_{};
};

}  // namespace tutti::wire
