#pragma once
#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// While it lives, a capture elsewhere in the process does not forbid this thread to ask for events and to allocate,
/// and is not spoilt by it: what such calls are about must not be part of that capture. Not to be moved to another
/// thread.
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
