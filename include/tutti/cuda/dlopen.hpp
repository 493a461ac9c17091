#pragma once
#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include <tutti/cuda/types.hpp>
#include <tutti/os/dynamic_library.hpp>

namespace tutti::cuda {

/// The installed runtime of CUDA.
struct installed_runtime {
  static os::dynamic_library load() {
    return os::dynamic_library{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};
  }
};

namespace detail {

/// The runtime's functions, with the types that they have in every version from 11.8 on. Enumerations are numbers,
/// since CUDA promises not to change these; a device's properties begin the same in all versions.
struct runtime_table {
  using stream = stream_handle;
  using event = event_handle;
  int (*device_count)(int*) = nullptr;
  int (*properties)(void*, int) = nullptr;
  int (*pci)(char*, int, int) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*create_event)(event*, unsigned) = nullptr;
  int (*destroy_event)(event) = nullptr;
  int (*record)(event, stream) = nullptr;
  int (*query_event)(event) = nullptr;
  int (*priorities)(int*, int*) = nullptr;
  int (*create_stream)(stream*, unsigned, int) = nullptr;
  int (*destroy_stream)(stream) = nullptr;
  int (*query_stream)(stream) = nullptr;
  int (*device_of)(stream, int*) = nullptr;  // from 12.8 on
  int (*wait)(stream, event, unsigned) = nullptr;
  // Up to CUDA 12 the function has one argument less and this name; later it has all of them and the old name, which
  // takes 3 in CUDA 12.
  int (*capture_v2)(stream, int*, unsigned long long*, void*, void*, void*) = nullptr;
  int (*capture)(stream, int*, unsigned long long*, void*, void*, void*, void*) = nullptr;
  int (*capture_mode)(int*) = nullptr;
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*deallocate)(void*) = nullptr;
  int (*allocate_host)(void**, std::size_t) = nullptr;
  int (*deallocate_host)(void*) = nullptr;
  const char* (*name)(int) = nullptr;
  const char* (*words)(int) = nullptr;
  int (*forget_error)() = nullptr;
  std::string missing;  ///< the reason why it cannot be used, with the remedy; empty if it can

  explicit runtime_table(const os::dynamic_library& lib) {
    if (!lib.loaded()) {
      missing = "CUDA's runtime, libcudart.so, cannot be loaded (" + lib.why_not() +
                "); install it (Debian package of NVIDIA: cuda-cudart), or put its directory into LD_LIBRARY_PATH";
      return;
    }
    const os::required_functions need{lib, missing, "the CUDA runtime that was loaded", "11.8 or newer is needed"};
    need(device_count, "cudaGetDeviceCount");
    need(properties, "cudaGetDeviceProperties");
    need(pci, "cudaDeviceGetPCIBusId");
    need(get_device, "cudaGetDevice");
    need(set_device, "cudaSetDevice");
    need(create_event, "cudaEventCreateWithFlags");
    need(destroy_event, "cudaEventDestroy");
    need(record, "cudaEventRecord");
    need(query_event, "cudaEventQuery");
    need(priorities, "cudaDeviceGetStreamPriorityRange");
    need(create_stream, "cudaStreamCreateWithPriority");
    need(destroy_stream, "cudaStreamDestroy");
    need(query_stream, "cudaStreamQuery");
    lib.find(device_of, "cudaStreamGetDevice");
    need(wait, "cudaStreamWaitEvent");
    if (!lib.find(capture_v2, "cudaStreamGetCaptureInfo_v2")) need(capture, "cudaStreamGetCaptureInfo");
    need(capture_mode, "cudaThreadExchangeStreamCaptureMode");
    need(allocate, "cudaMalloc");
    need(deallocate, "cudaFree");
    need(allocate_host, "cudaMallocHost");
    need(deallocate_host, "cudaFreeHost");
    need(name, "cudaGetErrorName");
    need(words, "cudaGetErrorString");
    need(forget_error, "cudaGetLastError");
  }
};

}  // namespace detail

/// CUDA's runtime, loaded by its first call: for programs that must start without it and are compiled without its
/// headers. If it cannot be loaded, missing() returns the reason, and every call fails.
template <class Where>
class basic_runtime_dlopen {
 public:
  /// Returns the reason why it cannot be used, with the remedy; empty if it can. May throw bad_alloc.
  static const std::string& missing() { return table().missing; }

  static result device_count(int& n) noexcept { return call(&table_type::device_count, &n); }
  static result identify(int device, device_identity& who) noexcept {
    alignas(16) std::array<char, 8192> about{};  // more than any version writes
    const result r = call(&table_type::properties, static_cast<void*>(about.data()), device);
    if (r != result::success) return r;
    std::memcpy(who.uuid.data(), about.data() + 256, who.uuid.size());
    about[255] = 0;
    who.model = {};
    std::copy_n(about.data(), (std::min)(std::strlen(about.data()), who.model.size() - 1), who.model.data());
    who.pci = {};
    return call(&table_type::pci, who.pci.data(), static_cast<int>(who.pci.size()), device);
  }
  static result get_device(int& device) noexcept { return call(&table_type::get_device, &device); }
  static result set_device(int device) noexcept { return call(&table_type::set_device, device); }

  static result create_event(event_handle& e) noexcept {
    constexpr unsigned without_times = 2;
    return call(&table_type::create_event, &e, without_times);
  }
  static result destroy_event(event_handle e) noexcept { return call(&table_type::destroy_event, e); }
  static result record(event_handle e, stream_handle s) noexcept { return call(&table_type::record, e, s); }
  static result query_event(event_handle e) noexcept { return call(&table_type::query_event, e); }

  static result create_stream(stream_handle& s) noexcept {
    int least = 0, greatest = 0;
    const result r = call(&table_type::priorities, &least, &greatest);
    if (r != result::success) return r;
    constexpr unsigned without_ties = 1;
    return call(&table_type::create_stream, &s, without_ties, greatest);
  }
  static result destroy_stream(stream_handle s) noexcept { return call(&table_type::destroy_stream, s); }
  static result query_stream(stream_handle s) noexcept { return call(&table_type::query_stream, s); }
  static result device_of(stream_handle s, int& device) noexcept {
    if (usable() && !table().device_of) return result::not_supported;
    return call(&table_type::device_of, s, &device);
  }
  static result wait(stream_handle s, event_handle e) noexcept { return call(&table_type::wait, s, e, 0U); }
  static result capture_of(stream_handle s, capture_state& c) noexcept {
    int now = 0;
    unsigned long long graph = 0;
    void* const none = nullptr;
    const result r = usable() && table().capture_v2
                         ? call(&table_type::capture_v2, s, &now, &graph, none, none, none)
                         : call(&table_type::capture, s, &now, &graph, none, none, none, none);
    c = {static_cast<capture_status>(now), static_cast<capture_status>(now) == capture_status::active ? graph : 0};
    return r;
  }
  static result exchange_capture_mode(capture_mode& mode) noexcept {
    int theirs = static_cast<int>(mode);
    const result r = call(&table_type::capture_mode, &theirs);
    mode = static_cast<capture_mode>(theirs);
    return r;
  }

  static result allocate(void*& p, std::size_t bytes) noexcept { return call(&table_type::allocate, &p, bytes); }
  static result deallocate(void* p) noexcept { return call(&table_type::deallocate, p); }
  static result allocate_host(void*& p, std::size_t n) noexcept { return call(&table_type::allocate_host, &p, n); }
  static result deallocate_host(void* p) noexcept { return call(&table_type::deallocate_host, p); }

  static const char* name(result r) noexcept {
    return usable() ? table().name(static_cast<int>(r)) : "cudaErrorUnknown";
  }
  static const char* words(result r) noexcept {
    return usable() ? table().words(static_cast<int>(r)) : "CUDA's runtime could not be loaded";
  }

 private:
  using table_type = detail::runtime_table;
  static constexpr result unknown = static_cast<result>(999);  // cudaErrorUnknown

  static const table_type& table() {
    static const table_type loaded{Where::load()};
    return loaded;
  }
  static bool usable() noexcept try { return table().missing.empty(); } catch (...) {  // no memory to load it
    return false;
  }
  template <class... Params, class... Args>
  static result call(int (*table_type::*f)(Params...), Args... args) noexcept {
    if (!usable()) return unknown;
    const auto r = static_cast<result>((table().*f)(args...));
    if (r != result::success) static_cast<void>(table().forget_error());  // reported once, by the call that failed
    return r;
  }
};
/// The runtime that is installed on this machine; see basic_runtime_dlopen.
using runtime_dlopen = basic_runtime_dlopen<installed_runtime>;
static_assert(runtime_api<runtime_dlopen>);

}  // namespace tutti::cuda
