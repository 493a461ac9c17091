#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti {

/// The features of NCCL that this library uses and not every version has.
enum class nccl_feature : std::uint8_t {
  memory,      ///< ncclMemAlloc
  windows,     ///< ncclCommWindowRegister
  shrink,      ///< ncclCommShrink
  exchange,    ///< ncclAlltoAll, ncclGather, ncclScatter
  revoke,      ///< ncclCommRevoke
  grow,        ///< ncclCommGrow; not called: a larger world is a new communicator
  timed_calls  ///< ncclTimeout as a result, which becomes errc::timed_out
};

/// Returns the first version that has a feature, as ncclGetVersion counts: 22809 is 2.28.9.
constexpr int nccl_since(nccl_feature f) noexcept {
  switch (f) {
    case nccl_feature::memory:
      return 21903;
    case nccl_feature::windows:
    case nccl_feature::shrink:
      return 22700;
    case nccl_feature::exchange:
      return 22803;
    case nccl_feature::revoke:
      return 22807;
    case nccl_feature::grow:
      return 22902;
    default:
      return 23003;
  }
}

/// Returns true if a feature can be used: this version of the library has it, and `Api` was compiled with it or has
/// found it.
template <class Api>
[[nodiscard]] bool nccl_has(nccl_feature f, int version) noexcept {
  return version >= nccl_since(f) && Api::has(f);
}

}  // namespace tutti
