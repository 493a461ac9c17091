#pragma once
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/tls1.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <tutti/bootstrap/openssl.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>

namespace tutti {

/// Secure channel by OpenSSL's libssl (3.0 or newer): TLS 1.3 with an external PSK, an ephemeral key exchange
/// (psk_dhe_ke), TLS_AES_128_GCM_SHA256, and no certificates, tickets or early data. To encrypt connections, include
/// this header in one source file and link the CMake target tutti::openssl: it registers make(). It sends no
/// close_notify: the stream above tells by itself whether it is complete.
class tls_channel final : public secure_channel {
 public:
  /// Full records that may be encrypted with one key of AES-GCM: 2^24.5 (RFC 8446, 5.5).
  static constexpr std::uint64_t most_records = std::uint64_t{1} << 23;

  /// Throws bad_alloc. The traffic key is renewed after `records`.
  tls_channel(int socket, side end, const wire::mac& key, const wire::job_id& identity,
              std::uint64_t records = most_records)
      : socket_(socket),
        key_(key),
        identity_(identity),
        records_(records),
        ssl_(context() ? SSL_new(context()) : nullptr) {
    BIO* io = ssl_ && method() ? BIO_new(method()) : nullptr;
    if (io == nullptr) throw std::bad_alloc{};
    BIO_set_data(io, this);
    BIO_set_init(io, 1);
    SSL_set_bio(ssl_.get(), io, io);
    SSL_set_ex_data(ssl_.get(), 0, this);
    if (end == side::opener) {
      SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);  // no certificate is trusted
      SSL_set_connect_state(ssl_.get());
    } else {
      SSL_set_accept_state(ssl_.get());
    }
  }
  tls_channel(const tls_channel&) = delete;
  tls_channel& operator=(const tls_channel&) = delete;
  ~tls_channel() override { OPENSSL_cleanse(key_.data(), key_.size()); }

  static std::unique_ptr<secure_channel> make(int socket, side end, const wire::mac& key,
                                              const wire::job_id& identity) noexcept try {
    return std::make_unique<tls_channel>(socket, end, key, identity);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }

  progress continue_handshake() noexcept override {
    blocked_ = false;
    (void)flush();
    if (SSL_do_handshake(ssl_.get()) == 1) {
      // With the PSK, a handshake counts as a resumption; any other one would need a certificate.
      if (SSL_session_reused(ssl_.get()) != 1) return progress::forged;
      OPENSSL_cleanse(key_.data(), key_.size());
      SSL_set_read_ahead(ssl_.get(),
                         1);  // not before: whoever waits for the handshake would not see what came behind it
      return progress::open;
    }
    if (blocked_ && !out_closed_) return progress::waiting;
    note_failure();
    return broken_ == forgery ? progress::forged : progress::closed;
  }

  os::io_result write(std::span<const std::byte> plain, os::segment last) noexcept override {
    if (const os::io_result r = flush(); r.closed || keeps_some()) return {0, r.closed ? r.error : EAGAIN, r.closed};
    std::size_t done = 0;
    while (done < plain.size() && !keeps_some() && !out_closed_) {
      const auto record = plain.subspan(done, (std::min)(plain.size() - done, most_in_record));
      last_ = done + record.size() == plain.size() ? last : os::segment::when_full;
      if (++sent_ % records_ == 0) (void)SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
      std::size_t taken = 0;
      if (SSL_write_ex(ssl_.get(), record.data(), record.size(), &taken) != 1) {
        note_failure();
        return {done, broken_, true};
      }
      done += taken;
    }
    if (out_closed_) return {done, out_error_, true};
    return {done, done < plain.size() ? EAGAIN : 0, false};
  }

  os::io_result read(std::span<const iovec> pieces) noexcept override {
    std::size_t total = 0;
    for (const iovec& p : pieces) {
      for (std::size_t got = 0, n = 0; got < p.iov_len; got += n, total += n) {
        blocked_ = false;
        if (SSL_read_ex(ssl_.get(), static_cast<std::byte*>(p.iov_base) + got, p.iov_len - got, &n) == 1) continue;
        if (blocked_) return {total, EAGAIN, false};
        note_failure();
        if (total != 0) return {total, 0, false};  // the next read tells
        return {0, broken_, true};
      }
    }
    return {total, 0, false};
  }

  [[nodiscard]] bool keeps_some() const noexcept override { return !kept_.empty(); }
  os::io_result flush() noexcept override {
    if (kept_.empty() || out_closed_) return {0, out_error_, out_closed_};
    const os::io_result r = os::send_some(socket_, std::span<const std::byte>{kept_});
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(r.bytes));
    note_sent(r);
    return r;
  }

 private:
  static constexpr std::size_t most_in_record = SSL3_RT_MAX_PLAIN_LENGTH, read_ahead = 64 << 10;

  struct freeing {
    void operator()(SSL* s) const noexcept { SSL_free(s); }
  };

  static tls_channel& of(SSL* s) noexcept { return *static_cast<tls_channel*>(SSL_get_ex_data(s, 0)); }
  static tls_channel& of(BIO* io) noexcept { return *static_cast<tls_channel*>(BIO_get_data(io)); }

  /// Returns the context of all channels of the process, which lives as long; null if there is no memory.
  static SSL_CTX* context() noexcept {
    static SSL_CTX* const made = [] {
      SSL_CTX* c = SSL_CTX_new(TLS_method());
      if (c == nullptr) return c;
      const bool set = SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 &&
                       SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) == 1 &&
                       SSL_CTX_set_ciphersuites(c, TLS1_3_RFC_AES_128_GCM_SHA256) == 1 &&
                       SSL_CTX_set_num_tickets(c, 0) == 1;
      SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
      SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
      SSL_CTX_set_default_read_buffer_len(c, read_ahead);
      SSL_CTX_set_psk_use_session_callback(c, &offer);
      SSL_CTX_set_psk_find_session_callback(c, &find);
      if (set) return c;
      SSL_CTX_free(c);
      return static_cast<SSL_CTX*>(nullptr);
    }();
    return made;
  }

  /// Returns the PSK, as the session that OpenSSL takes it for; null if there is no memory.
  static SSL_SESSION* session_of(SSL* s) noexcept {
    constexpr unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    const SSL_CIPHER* cipher = SSL_CIPHER_find(s, aes_128_gcm_sha256);
    SSL_SESSION* made = SSL_SESSION_new();
    const auto* key = reinterpret_cast<const unsigned char*>(of(s).key_.data());
    if (made != nullptr && cipher != nullptr && SSL_SESSION_set1_master_key(made, key, of(s).key_.size()) == 1 &&
        SSL_SESSION_set_cipher(made, cipher) == 1 && SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1)
      return made;
    SSL_SESSION_free(made);
    return nullptr;
  }
  static int offer(SSL* s, const EVP_MD*, const unsigned char** id, std::size_t* bytes, SSL_SESSION** psk) noexcept {
    const auto& identity = of(s).identity_.bytes;
    *id = reinterpret_cast<const unsigned char*>(identity.data());
    *bytes = identity.size();
    *psk = session_of(s);
    return *psk != nullptr;
  }
  static int find(SSL* s, const unsigned char* id, std::size_t bytes, SSL_SESSION** psk) noexcept {
    const auto& identity = of(s).identity_.bytes;
    const bool ours = bytes == identity.size() && std::memcmp(id, identity.data(), bytes) == 0;
    *psk = ours ? session_of(s) : nullptr;
    return !ours || *psk != nullptr;
  }

  // OpenSSL's own BIO of a socket would raise SIGPIPE, and would keep records that are half sent in the SSL object,
  // which then takes nothing but the same bytes again.
  static BIO_METHOD* method() noexcept {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti socket");
      if (m == nullptr) return m;
      BIO_meth_set_write(m, &send);
      BIO_meth_set_read(m, &receive);
      BIO_meth_set_ctrl(m, [](BIO*, int what, long, void*) -> long { return what == BIO_CTRL_FLUSH; });
      return m;
    }();
    return made;
  }
  /// Takes all bytes of a record: those that find no room are kept, and those that nobody can get are dropped, so that
  /// what the peer has sent can still be read.
  static int send(BIO* io, const char* from, int n) noexcept {
    tls_channel& c = of(io);
    const auto bytes = std::as_bytes(std::span{from, static_cast<std::size_t>(n)});
    if (c.out_closed_) return n;
    const os::io_result r = c.kept_.empty() ? os::send_some(c.socket_, bytes, c.last_) : os::io_result{};
    c.note_sent(r);
    try {
      if (!r.closed) c.kept_.insert(c.kept_.end(), bytes.begin() + static_cast<std::ptrdiff_t>(r.bytes), bytes.end());
    } catch (const std::bad_alloc&) {
      c.note_sent({0, ENOMEM, true});
    }
    return n;
  }
  static int receive(BIO* io, char* to, int n) noexcept {
    tls_channel& c = of(io);
    BIO_clear_retry_flags(io);
    const os::io_result r =
        os::receive_some(c.socket_, std::as_writable_bytes(std::span{to, static_cast<std::size_t>(n)}));
    if (r.bytes != 0) return static_cast<int>(r.bytes);
    if (r.would_block()) {
      c.blocked_ = true;
      BIO_set_retry_read(io);
    } else {
      c.in_ended_ = true;
      c.in_error_ = r.error;
    }
    return -1;
  }

  void note_sent(const os::io_result& r) noexcept {
    if (!r.closed) return;
    out_closed_ = true;
    out_error_ = r.error;
    kept_.clear();
  }
  /// Finds the reason after a call of OpenSSL has failed for good; the first one stays. An alert says that the peer has
  /// found a fault, and the peer says which by other means.
  void note_failure() noexcept {
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    ERR_clear_error();
    if (std::exchange(failed_, true)) return;
    broken_ = in_ended_ ? in_error_ : out_closed_ ? out_error_ : reason >= SSL_AD_REASON_OFFSET ? ECONNRESET : forgery;
  }

  int socket_;
  wire::mac key_;
  wire::job_id identity_;
  std::uint64_t records_, sent_ = 0;
  std::vector<std::byte> kept_;  // encrypted bytes that the socket had no room for
  os::segment last_ = os::segment::now;
  bool blocked_ = false, in_ended_ = false, out_closed_ = false, failed_ = false;
  int in_error_ = 0, out_error_ = 0, broken_ = 0;
  std::unique_ptr<SSL, freeing> ssl_;
};

namespace detail {
struct tls_registration {
  tls_registration() noexcept { secure_channel_provider.store(&tls_channel::make); }
};
inline const tls_registration tls_registered;
}  // namespace detail

}  // namespace tutti
