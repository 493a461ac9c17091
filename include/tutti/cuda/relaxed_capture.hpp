#pragma once
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// Guard that lets this thread query events and allocate while a capture goes on elsewhere in the process, without
/// invalidating it: the calls must not concern that capture. Must not be moved to another thread.
template <runtime_api R>
class relaxed_capture {
 public:
  relaxed_capture() noexcept { exchanged_ = R::exchange_capture_mode(mode_) == result::success; }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;
  ~relaxed_capture() {
    if (exchanged_) static_cast<void>(R::exchange_capture_mode(mode_));
  }

 private:
  capture_mode mode_ = capture_mode::relaxed;
  bool exchanged_ = false;
};

}  // namespace tutti::cuda
