#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// The permission to listen without a secret at an address that other machines can reach.
enum class exposure : std::uint8_t {
  guarded,  ///< not given: listening throws error{auth_failed}
  insecure  ///< given: every process that can reach the address can join the job and read its data
};

}  // namespace tutti
