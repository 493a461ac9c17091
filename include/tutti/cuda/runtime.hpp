#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <tutti/cuda/types.hpp>

namespace tutti::cuda {

/// CUDA's runtime, linked by the CMake target tutti::nccl.
struct runtime {
  static result device_count(int& n) noexcept { return code(::cudaGetDeviceCount(&n)); }
  static result identify(int device, device_identity& who) noexcept {
    ::cudaDeviceProp about{};
    const result r = code(::cudaGetDeviceProperties(&about, device));
    if (r != result::success) return r;
    std::memcpy(who.uuid.data(), &about.uuid, who.uuid.size());
    who.model = {};
    who.pci = {};
    std::snprintf(who.pci.data(), who.pci.size(), "%04x:%02x:%02x.0", about.pciDomainID, about.pciBusID,
                  about.pciDeviceID);
    std::copy_n(about.name, (std::min)(std::strlen(about.name), who.model.size() - 1), who.model.data());
    return r;
  }
  static result get_device(int& device) noexcept { return code(::cudaGetDevice(&device)); }
  static result set_device(int device) noexcept { return code(::cudaSetDevice(device)); }

  static result create_event(event_handle& e) noexcept {
    return code(::cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  }
  static result destroy_event(event_handle e) noexcept { return code(::cudaEventDestroy(e)); }
  static result record(event_handle e, stream_handle s) noexcept { return code(::cudaEventRecord(e, s)); }
  static result query_event(event_handle e) noexcept { return code(::cudaEventQuery(e)); }

  static result create_stream(stream_handle& s) noexcept {
    int least = 0, greatest = 0;
    const result r = code(::cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (r != result::success) return r;
    return code(::cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest));
  }
  static result destroy_stream(stream_handle s) noexcept { return code(::cudaStreamDestroy(s)); }
  static result query_stream(stream_handle s) noexcept { return code(::cudaStreamQuery(s)); }
  static result device_of([[maybe_unused]] stream_handle s, [[maybe_unused]] int& device) noexcept {
#if CUDART_VERSION >= 12080
    return code(::cudaStreamGetDevice(s, &device));
#else
    return result::not_supported;
#endif
  }
  static result wait(stream_handle s, event_handle e) noexcept { return code(::cudaStreamWaitEvent(s, e, 0)); }

  static result capture_of(stream_handle s, capture_state& c) noexcept {
    ::cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;
    unsigned long long graph = 0;
    const result r = code(::cudaStreamGetCaptureInfo(s, &now, &graph));
    c = {static_cast<capture_status>(now), now == cudaStreamCaptureStatusActive ? graph : 0};
    return r;
  }
  static result exchange_capture_mode(capture_mode& mode) noexcept {
    auto theirs = static_cast<::cudaStreamCaptureMode>(mode);
    const result r = code(::cudaThreadExchangeStreamCaptureMode(&theirs));
    mode = static_cast<capture_mode>(theirs);
    return r;
  }

  static result allocate(void*& p, std::size_t bytes) noexcept { return code(::cudaMalloc(&p, bytes)); }
  static result deallocate(void* p) noexcept { return code(::cudaFree(p)); }
  static result fill_zero(void* p, std::size_t bytes, stream_handle s) noexcept {
    return code(::cudaMemsetAsync(p, 0, bytes, s));
  }
  static result copy(void* to, const void* from, std::size_t bytes, stream_handle s) noexcept {
    return code(::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s));
  }

  static result allocate_host(void*& p, std::size_t bytes) noexcept { return code(::cudaMallocHost(&p, bytes)); }
  static result deallocate_host(void* p) noexcept { return code(::cudaFreeHost(p)); }

  static const char* name(result r) noexcept { return ::cudaGetErrorName(static_cast<::cudaError_t>(r)); }
  static const char* words(result r) noexcept { return ::cudaGetErrorString(static_cast<::cudaError_t>(r)); }

 private:
  // Clears CUDA's last error, so that only the call that failed reports it, and not the user's next launch of a kernel.
  static result code(::cudaError_t e) noexcept {
    if (e != ::cudaSuccess) static_cast<void>(::cudaGetLastError());
    return static_cast<result>(e);
  }
};
static_assert(runtime_api<runtime> && moving_api<runtime>);
static_assert(static_cast<int>(result::out_of_memory) == ::cudaErrorMemoryAllocation &&
              static_cast<int>(result::insufficient_driver) == ::cudaErrorInsufficientDriver &&
              static_cast<int>(result::no_device) == ::cudaErrorNoDevice &&
              static_cast<int>(result::invalid_device) == ::cudaErrorInvalidDevice &&
              static_cast<int>(result::invalid_handle) == ::cudaErrorInvalidResourceHandle &&
              static_cast<int>(result::not_ready) == ::cudaErrorNotReady &&
              static_cast<int>(result::not_supported) == ::cudaErrorNotSupported &&
              static_cast<int>(result::capture_first) == ::cudaErrorStreamCaptureUnsupported &&
              static_cast<int>(result::capture_implicit) == ::cudaErrorStreamCaptureImplicit &&
              static_cast<int>(result::capture_last) == ::cudaErrorStreamCaptureWrongThread);
static_assert(static_cast<int>(capture_status::active) == ::cudaStreamCaptureStatusActive &&
              static_cast<int>(capture_status::invalidated) == ::cudaStreamCaptureStatusInvalidated &&
              static_cast<int>(capture_mode::thread_local_only) == ::cudaStreamCaptureModeThreadLocal &&
              static_cast<int>(capture_mode::relaxed) == ::cudaStreamCaptureModeRelaxed);

}  // namespace tutti::cuda
