#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include <tutti/core/error.hpp>

namespace tutti::wire {

/// Computes HMAC-SHA256 (RFC 2104). Returns false if it could not.
using hmac_fn = bool (*)(std::span<const std::byte> key, std::span<const std::byte> data,
                         std::span<std::byte, 32> out) noexcept;

using mac = std::array<std::byte, 32>;

/// The function that computes HMACs; null until a component registers one. The library has no cryptography of its own.
inline std::atomic<hmac_fn> hmac_provider{nullptr};

/// Throws error{unsupported} if no HMAC provider is registered; called if a secret is to be used.
inline void require_hmac_provider() {
  if (hmac_provider.load() != nullptr) return;
  throw error{{errc::unsupported},
              "the job has a secret, but nothing in this program computes HMAC-SHA256: link the CMake target "
              "tutti::openssl, or include <tutti/bootstrap/openssl.hpp> in one source file and link libcrypto"};
}

}  // namespace tutti::wire
