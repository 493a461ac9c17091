#pragma once
#include <tutti/config.hpp>

struct CUstream_st;

namespace tutti {

/// A reference to a device stream; empty for host memory. Does not own. Needs no CUDA header.
class stream_ref {
 public:
  constexpr stream_ref() noexcept = default;
  constexpr stream_ref(CUstream_st* s) noexcept : stream_(s) {}
  stream_ref(int) = delete;  // 0 would silently mean the legacy default stream

  [[nodiscard]] constexpr CUstream_st* native() const noexcept { return stream_; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return stream_ != nullptr; }

 private:
  CUstream_st* stream_ = nullptr;
};

}  // namespace tutti
