#pragma once
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <climits>
#include <cstddef>
#include <span>

#include <tutti/wire/hmac.hpp>

namespace tutti {

/// Computes HMAC-SHA256 with OpenSSL's libcrypto (3.0 or newer). To use a job's secret, include this header in one
/// source file, or link the CMake target tutti::openssl: it registers this function.
inline bool openssl_hmac(std::span<const std::byte> key, std::span<const std::byte> data,
                         std::span<std::byte, 32> out) noexcept {
  if (key.size() > INT_MAX) return false;
  unsigned int bytes = 0;
  const auto* done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                            reinterpret_cast<unsigned char*>(out.data()), &bytes);
  return done != nullptr && bytes == out.size();
}

namespace detail {
struct openssl_registration {
  openssl_registration() noexcept {
    // A world with static storage duration says goodbye after main(), when OpenSSL would have freed what that takes.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    wire::hmac_provider.store(&openssl_hmac);
  }
};
inline const openssl_registration openssl_registered;
}  // namespace detail

}  // namespace tutti
