// NVML (libnvidia-ml.so.1) of a machine with two GPUs, on the second of which the process that asks uses memory: names
// and calls as its manual has them.
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace {

struct memory {
  unsigned long long total, free, used;
};
struct utilization {
  unsigned gpu, memory;
};
struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long mib = 1ULL << 20;

std::uintptr_t number(void* device) { return reinterpret_cast<std::uintptr_t>(device) - 1; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { return *n = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  if (bytes < 8) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  std::strcpy(text, number(device) == 0 ? "GPU-a" : "GPU-b");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, memory* to) {
  *to = {1000 * mib, 1000 * mib, 0};
  if (number(device) == 1) *to = {1000 * mib, 700 * mib, 300 * mib};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, utilization* to) {
  if (number(device) == 0) return 3;  // NVML_ERROR_NOT_SUPPORTED, as of a part of a GPU
  *to = {75, 10};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, process* to) {
  if (*count < 2) return 7;
  *count = number(device) == 1 ? 2 : 0;
  to[0] = {1, 100 * mib, 0, 0};
  to[1] = {static_cast<unsigned>(::getpid()), 200 * mib, 0, 0};
  return 0;
}
}
