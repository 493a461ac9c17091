#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// The consent to listen without a secret at an address that other machines reach.
enum class exposure : std::uint8_t {
  guarded,  ///< no: refuse to listen
  insecure  ///< yes: everybody who can reach the address can join and read
};

}  // namespace tutti
