#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tutti/core/stream_ref.hpp>

struct CUevent_st;

/// CUDA's runtime as the library uses it. Only cuda/runtime.hpp needs CUDA's headers, so that all logic over it
/// compiles, and is tested, without them.
namespace tutti::cuda {

using stream_handle = CUstream_st*;
using event_handle = CUevent_st*;

/// The codes of cudaError_t that the library distinguishes; others occur, too. CUDA promises not to change the numbers.
enum class result : int {
  success = 0,
  out_of_memory = 2,
  insufficient_driver = 35,
  no_device = 100,
  invalid_device = 101,
  invalid_handle = 400,  ///< also for an event and a stream of different devices
  not_ready = 600,
  not_supported = 801,
  capture_first = 900,     ///< from here to capture_last: a call that a stream capture does not permit
  capture_implicit = 906,  ///< the default stream, while a stream that waits for it is captured
  capture_last = 908
};
constexpr bool is_of_capture(result r) noexcept { return r >= result::capture_first && r <= result::capture_last; }

/// The state of a stream: its work runs, or is written into a graph; cudaStreamCaptureStatus.
enum class capture_status : int { none, active, invalidated };
/// The capture of one stream.
struct capture_state {
  capture_status now = capture_status::none;
  std::uint64_t graph = 0;  ///< unique among the captures of this process
};

/// The calls that a capture somewhere in the process forbids to a thread; cudaStreamCaptureMode.
enum class capture_mode : int { global, thread_local_only, relaxed };

/// The identity of a device.
struct device_identity {
  std::array<std::uint8_t, 16> uuid{};
  std::array<char, 64> model{};  ///< "NVIDIA H200", zero-terminated
  std::array<char, 20> pci{};    ///< "0000:1b:00.0", its PCI address, zero-terminated
};

/// A type with the functions of CUDA's runtime that are used, as static members: cuda/runtime.hpp has the real ones,
/// tests have fakes. None throws; each returns CUDA's result; device_of() returns not_supported before CUDA 12.8.
/// Streams are made with the highest priority and without waiting for the default stream, events without times.
template <class R>
concept runtime_api = requires(int& n, int device, device_identity& who, event_handle& e, stream_handle& s, void*& p,
                               std::size_t bytes, result r, capture_state& c, capture_mode& mode) {
  { R::device_count(n) } noexcept -> std::same_as<result>;
  { R::identify(device, who) } noexcept -> std::same_as<result>;
  { R::get_device(n) } noexcept -> std::same_as<result>;
  { R::set_device(device) } noexcept -> std::same_as<result>;
  { R::create_event(e) } noexcept -> std::same_as<result>;
  { R::destroy_event(e) } noexcept -> std::same_as<result>;
  { R::record(e, s) } noexcept -> std::same_as<result>;
  { R::query_event(e) } noexcept -> std::same_as<result>;
  { R::create_stream(s) } noexcept -> std::same_as<result>;
  { R::destroy_stream(s) } noexcept -> std::same_as<result>;
  { R::query_stream(s) } noexcept -> std::same_as<result>;
  { R::device_of(s, n) } noexcept -> std::same_as<result>;
  { R::wait(s, e) } noexcept -> std::same_as<result>;
  { R::capture_of(s, c) } noexcept -> std::same_as<result>;
  { R::exchange_capture_mode(mode) } noexcept -> std::same_as<result>;
  { R::allocate(p, bytes) } noexcept -> std::same_as<result>;
  { R::deallocate(p) } noexcept -> std::same_as<result>;
  { R::allocate_host(p, bytes) } noexcept -> std::same_as<result>;
  { R::deallocate_host(p) } noexcept -> std::same_as<result>;
  { R::name(r) } noexcept -> std::same_as<const char*>;
  { R::words(r) } noexcept -> std::same_as<const char*>;
};

/// A runtime that also fills memory with zeros, and copies between any two memories, in a stream.
template <class R>
concept moving_api = runtime_api<R> && requires(void* p, const void* from, std::size_t bytes, stream_handle s) {
  { R::fill_zero(p, bytes, s) } noexcept -> std::same_as<result>;
  { R::copy(p, from, bytes, s) } noexcept -> std::same_as<result>;
};

}  // namespace tutti::cuda
