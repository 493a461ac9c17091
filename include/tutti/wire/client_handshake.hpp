#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <tutti/wire/constant_time.hpp>
#include <tutti/wire/handshake.hpp>

namespace tutti::wire {

/// The connecting side of a handshake: bytes in, bytes out. It has something to send from the beginning, proves itself
/// only to a server that asks for the expected kind of proof, and accepts only a server that proves itself in return.
class client_handshake {
 public:
  explicit client_handshake(const handshake_terms& terms, random_fn random = &kernel_random) noexcept : terms_(terms) {
    if (!random(nonce_)) {
      refuse(refusal::no_randomness);
    } else if (terms_.how == proof::hmac && (terms_.key == nullptr || hmac_provider.load() == nullptr)) {
      refuse(refusal::no_provider);
    } else {
      make_claim();
    }
  }
  client_handshake(const client_handshake&) = delete;  // output_ points into the object
  client_handshake& operator=(const client_handshake&) = delete;

  [[nodiscard]] handshake_state state() const noexcept { return state_; }
  [[nodiscard]] refusal why() const noexcept { return why_; }
  [[nodiscard]] const handshake_counterpart& counterpart() const noexcept { return theirs_; }

  /// Computes the same key as the server's handshake does.
  [[nodiscard]] bool channel_key(mac& out) const noexcept {
    return terms_.key != nullptr && detail::transcript_mac(*terms_.key, "tutti channel", hello_, claim(), {}, out);
  }

  /// Returns the maximal number of bytes to read before the next receive(): further ones may belong to the protocol
  /// above.
  [[nodiscard]] std::size_t wanted() const noexcept {
    return state_ == handshake_state::running ? expected_bytes() - received_ : 0;
  }

  /// Returns the bytes to send now; sent(n) removes the first n.
  [[nodiscard]] std::span<const std::byte> output() const noexcept { return output_; }
  void sent(std::size_t bytes) noexcept { output_ = output_.subspan((std::min)(bytes, output_.size())); }

  void receive(std::span<const std::byte> in) noexcept {
    while (state_ == handshake_state::running && !in.empty()) {
      // A reply that comes before everything was sent is not a reply to it.
      if (greeted_ && !output_.empty()) return refuse(refusal::not_our_protocol);
      const auto message = greeted_ ? std::span<std::byte>{reply_} : std::span<std::byte>{hello_};
      const std::size_t now = (std::min)(in.size(), message.size() - received_);
      std::memcpy(message.data() + received_, in.data(), now);
      received_ += now;
      in = in.subspan(now);
      if (!check_preamble(message.first(received_)) || received_ < message.size()) continue;
      received_ = 0;
      if (!greeted_) {
        answer();
      } else {
        judge();
      }
    }
    if (!in.empty() && state_ == handshake_state::accepted) refuse(refusal::not_our_protocol);
  }

 private:
  [[nodiscard]] std::span<const std::byte> claim() const noexcept {
    return std::span{said_}.first<detail::claim_bytes>();
  }
  [[nodiscard]] std::size_t expected_bytes() const noexcept { return greeted_ ? reply_.size() : hello_.size(); }

  /// Checks the preamble as far as it has been received. Returns false if the handshake is over.
  bool check_preamble(std::span<const std::byte> message) noexcept {
    const std::size_t known = (std::min)(message.size(), detail::magic.size());
    if (!std::equal(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(known), detail::magic.begin())) {
      refuse(refusal::not_our_protocol);
      return false;
    }
    if (message.size() < detail::preamble_bytes) return true;
    byte_reader r{message.subspan(detail::magic.size())};
    theirs_.version = r.u16();
    const std::uint8_t asked = r.u8();
    if (theirs_.version != handshake_version) {
      refuse(refusal::version);  // the server learns the other version from the claim and can name it, too
    } else if (asked != static_cast<std::uint8_t>(terms_.how)) {
      refuse(asked == static_cast<std::uint8_t>(proof::hmac) ? refusal::proof_wanted : refusal::proof_missing);
    }
    return state_ == handshake_state::running;
  }

  void make_claim() noexcept {
    const connection_claim c{terms_.role,       terms_.rank,        terms_.target,     terms_.world,
                             terms_.generation, terms_.connections, terms_.connection, terms_.job};
    const auto body = std::span{said_}.first<detail::claim_body_bytes>();
    detail::encode_claim_body(body, terms_.how, c, nonce_);
    mac early{};
    if (terms_.how == proof::hmac && !detail::transcript_mac(*terms_.key, "tutti early", {}, body, {}, early))
      return refuse(refusal::no_provider);
    std::copy(early.begin(), early.end(), said_.begin() + body.size());
    output_ = claim();
  }

  void answer() noexcept {
    greeted_ = true;
    if (terms_.how != proof::hmac) return;
    mac shown{};
    if (!detail::transcript_mac(*terms_.key, "tutti client", hello_, claim(), {}, shown))
      return refuse(refusal::no_provider);
    std::copy(shown.begin(), shown.end(), said_.begin() + detail::claim_bytes);
    output_ = std::span{said_}.last(output_.size() + shown.size());
  }

  void judge() noexcept {
    const auto body = std::span<const std::byte>{reply_}.first<detail::reply_body_bytes>();
    byte_reader r{body};
    r.skip(detail::preamble_bytes - 1);
    const auto verdict = static_cast<refusal>(r.u8());
    // A server that refused this side's proof does not prove itself.
    if (terms_.how == proof::hmac && verdict != refusal::authentication) {
      mac expected{};
      if (!detail::transcript_mac(*terms_.key, "tutti server", hello_, claim(), body, expected)) {
        return refuse(refusal::no_provider);
      }
      const auto shown = std::span<const std::byte>{reply_}.subspan<detail::reply_body_bytes>();
      if (!equal_in_constant_time(expected, shown)) return refuse(refusal::authentication);
    }
    theirs_.world = r.u32();
    theirs_.rank = r.u32();
    theirs_.connections = r.u32();
    theirs_.generation = r.u64();
    if (verdict == refusal::none) {
      state_ = handshake_state::accepted;
    } else {
      refuse(verdict <= refusal::encryption ? verdict : refusal::not_our_protocol);
    }
  }

  void refuse(refusal why) noexcept {
    state_ = handshake_state::refused;
    why_ = why;
    if (why != refusal::version) output_ = {};
  }

  handshake_terms terms_;
  handshake_state state_ = handshake_state::running;
  refusal why_ = refusal::none;
  bool greeted_ = false;
  handshake_counterpart theirs_;
  std::size_t received_ = 0;
  std::span<const std::byte> output_;
  detail::nonce nonce_{};
  std::array<std::byte, detail::hello_bytes> hello_{};
  std::array<std::byte, detail::claim_bytes + detail::proof_bytes> said_{};
  std::array<std::byte, detail::reply_bytes> reply_{};
};

}  // namespace tutti::wire
