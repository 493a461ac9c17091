#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/fork_guard.hpp>

namespace tutti::watch {

/// Memory and use of a GPU, as NVML tells them.
struct gpu_reading {
  unsigned index = 0;  ///< as in nvidia-smi
  std::string uuid;
  std::uint64_t used_bytes = 0, total_bytes = 0;
  double utilization = 0;                    ///< 0 to 1
  std::optional<std::uint64_t> own_bytes{};  ///< of this process, if it has any on the GPU and NVML tells
};

/// Reads all GPUs of this machine now, which can take milliseconds. Returns none where NVML (libnvidia-ml.so.1) cannot
/// be loaded, or fails.
TUTTI_DECL std::vector<gpu_reading> read_gpus();

/// The last readings of this machine's GPUs, which a thread takes every 5 s: never a thread that moves data. There is
/// no thread where there are no GPUs. Any thread.
class gpu_readings {
 public:
  /// Takes the first readings. Throws std::bad_alloc.
  TUTTI_DECL gpu_readings();
  gpu_readings(const gpu_readings&) = delete;
  gpu_readings& operator=(const gpu_readings&) = delete;
  TUTTI_DECL ~gpu_readings();

  /// Returns those of this process, which all its worlds have in common.
  TUTTI_DECL static std::shared_ptr<gpu_readings> shared();

  [[nodiscard]] std::vector<gpu_reading> last() const {
    const std::scoped_lock guard{mutex_};
    return last_;
  }

 private:
  TUTTI_DECL void refresh();

  ::tutti::detail::fork_guard maker_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::vector<gpu_reading> last_;
  std::thread thread_;
};

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/gpu_readings.hpp>
#endif
