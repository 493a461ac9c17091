#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/wire/checksum.hpp>
#include <tutti/wire/hmac.hpp>

namespace tutti_test {

/// Stands in for HMAC-SHA256 where a test needs a keyed function of the right shape and no cryptography.
inline bool pretended_hmac(std::span<const std::byte> key, std::span<const std::byte> data,
                           std::span<std::byte, 32> out) noexcept {
  for (std::size_t word = 0; word < 4; ++word) {
    const std::uint64_t sum = tutti::wire::checksum(data, tutti::wire::checksum(key, 0x1234567 + word));
    for (std::size_t i = 0; i < 8; ++i) out[word * 8 + i] = static_cast<std::byte>(sum >> (8 * i));
  }
  return true;
}

/// Registers it while it lives, unless a real provider is there.
class pretended_hmac_scope {
 public:
  pretended_hmac_scope() : before_(tutti::wire::hmac_provider.load()) {
    if (before_ == nullptr) tutti::wire::hmac_provider.store(&pretended_hmac);
  }
  pretended_hmac_scope(const pretended_hmac_scope&) = delete;
  ~pretended_hmac_scope() { tutti::wire::hmac_provider.store(before_); }

 private:
  tutti::wire::hmac_fn before_;
};

}  // namespace tutti_test
