#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/library_thread.hpp>
#include <tutti/os/dynamic_library.hpp>
#include <tutti/watch/gpu_readings.hpp>

namespace tutti::watch {

namespace detail {

/// The functions of NVML that are used, by its own names and types: their interface is the same in all versions since
/// 2020 (driver 450).
class nvml {
 public:
  struct memory {
    unsigned long long total, free, used;
  };
  struct utilization {
    unsigned gpu, memory;  // percent
  };
  struct process {
    unsigned pid;
    unsigned long long used;  // all bits set: not known
    unsigned gpu_instance, compute_instance;
  };
  using device = void*;

  /// Returns NVML, which is initialized once in a process; null where there is none, or no driver.
  static const nvml* installed() {
    static const nvml one;
    return one.usable_ ? &one : nullptr;
  }

  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, device*) = nullptr;
  int (*uuid)(device, char*, unsigned) = nullptr;
  int (*memory_of)(device, memory*) = nullptr;
  int (*utilization_of)(device, utilization*) = nullptr;
  int (*processes)(device, unsigned*, process*) = nullptr;

 private:
  nvml() : library_{"libnvidia-ml.so.1"} {
    int (*init)() = nullptr;
    usable_ = library_.find(init, "nvmlInit_v2") && library_.find(count, "nvmlDeviceGetCount_v2") &&
              library_.find(by_index, "nvmlDeviceGetHandleByIndex_v2") && library_.find(uuid, "nvmlDeviceGetUUID") &&
              library_.find(memory_of, "nvmlDeviceGetMemoryInfo") &&
              library_.find(utilization_of, "nvmlDeviceGetUtilizationRates") &&
              (library_.find(processes, "nvmlDeviceGetComputeRunningProcesses_v3") ||
               library_.find(processes, "nvmlDeviceGetComputeRunningProcesses_v2")) &&
              init() == 0;
  }

  os::dynamic_library library_;
  bool usable_ = false;
};

}  // namespace detail

TUTTI_DECL std::vector<gpu_reading> read_gpus() {
  std::vector<gpu_reading> all;
  const detail::nvml* const n = detail::nvml::installed();
  unsigned devices = 0;
  if (!n || n->count(&devices) != 0) return all;
  const auto own_pid = static_cast<unsigned>(::getpid());
  for (unsigned i = 0; i < devices; ++i) {
    detail::nvml::device d = nullptr;
    std::array<char, 96> uuid{};
    detail::nvml::memory memory{};
    detail::nvml::utilization busy{};
    if (n->by_index(i, &d) != 0 || n->uuid(d, uuid.data(), static_cast<unsigned>(uuid.size())) != 0 ||
        n->memory_of(d, &memory) != 0)
      continue;
    static_cast<void>(n->utilization_of(d, &busy));  // parts of a GPU have none
    gpu_reading g{i, uuid.data(), memory.used, memory.total, busy.gpu / 100.0, {}};
    std::vector<detail::nvml::process> processes(128);
    auto count = static_cast<unsigned>(processes.size());
    if (n->processes(d, &count, processes.data()) == 0)
      for (const auto& p : std::span{processes}.first((std::min)(std::size_t{count}, processes.size())))
        if (p.pid == own_pid && p.used != ~0ULL) g.own_bytes = g.own_bytes.value_or(0) + p.used;
    all.push_back(std::move(g));
  }
  return all;
}

TUTTI_DECL gpu_readings::gpu_readings() : last_(read_gpus()) {
  if (last_.empty()) return;
  try {
    thread_ = ::tutti::detail::library_thread([](void* self) { static_cast<gpu_readings*>(self)->refresh(); }, this);
  } catch (const std::system_error&) {  // the first readings are kept
  }
}

TUTTI_DECL void gpu_readings::refresh() {
  std::unique_lock guard{mutex_};
  while (!wake_.wait_for(guard, std::chrono::seconds(5), [this] { return ends_; })) {
    guard.unlock();
    std::vector<gpu_reading> fresh;
    try {
      fresh = read_gpus();
    } catch (const std::bad_alloc&) {  // the last ones are kept
    }
    guard.lock();
    if (!fresh.empty()) last_ = std::move(fresh);
  }
}

TUTTI_DECL gpu_readings::~gpu_readings() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock guard{mutex_};
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

TUTTI_DECL std::shared_ptr<gpu_readings> gpu_readings::shared() {
  static std::mutex alone;
  static std::weak_ptr<gpu_readings> made;
  const std::scoped_lock guard{alone};
  std::shared_ptr<gpu_readings> known = made.lock();
  if (known && !known->maker_.inherited()) return known;
  made = known = std::make_shared<gpu_readings>();
  return known;
}

}  // namespace tutti::watch
