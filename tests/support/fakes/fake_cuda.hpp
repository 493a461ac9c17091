#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/cuda/types.hpp>

#include <support/fakes/fake_machine.hpp>

namespace fake {

/// CUDA's runtime on it.
struct cuda {
  using result = tutti::cuda::result;
  using event_handle = tutti::cuda::event_handle;
  using stream_handle = tutti::cuda::stream_handle;

  static result device_count(int& n) noexcept {
    return on("cudaGetDeviceCount", [&](machine& m) { n = m.devices(); });
  }
  static result identify(int device, tutti::cuda::device_identity& who) noexcept {
    return on("cudaGetDeviceProperties", [&](machine& m) {
      const auto alike = m.uuid_of.find(device);
      who.uuid.fill(alike == m.uuid_of.end() ? static_cast<std::uint8_t>(device + 1) : alike->second);
      const std::string bus = "0000:0" + std::to_string(m.bus_of.contains(rank) ? m.bus_of[rank] : device) + ":00.0";
      bus.copy(who.pci.data(), who.pci.size() - 1);
      std::string_view{"a fake"}.copy(who.model.data(), who.model.size() - 1);
    });
  }
  static result get_device(int& device) noexcept {
    return on("cudaGetDevice", [&](machine&) { device = current_device; });
  }
  static result set_device(int device) noexcept {
    if (device >= machine::here().devices()) return result::invalid_device;
    return on("cudaSetDevice", [&](machine&) { current_device = device; });
  }
  static result create_event(event_handle& e) noexcept {
    return on("cudaEventCreateWithFlags", [&](machine& m) { e = m.make_event(current_device); });
  }
  static result destroy_event(event_handle e) noexcept {
    return on("cudaEventDestroy", [&](machine&) { e->alive = false; });
  }
  static result record(event_handle e, stream_handle s) noexcept {
    return on("cudaEventRecord", [&](machine& m) {
      CUstream_st* const to = m.resolve(s);
      if (!e->alive) ++m.misuses;
      if (to->device != e->device) return 400;
      if (to != s && m.captures_on(to->device)) return spoil(m, 906);
      e->in = to->in;
      e->tips = to->tips;
      if (to->in) return to->in->spoilt ? 901 : 0;
      const std::uint64_t mark = ++e->recorded;
      e->ahead.insert(mark);
      to->work.push_back([e, mark] { return e->ahead.erase(mark), true; });
      return 0;
    });
  }
  static result query_event(event_handle e) noexcept {
    return on("cudaEventQuery", [&](machine& m) {
      ++m.questions;
      if (e->in) return spoil(m, 907);
      if (const int no = m.unsafe()) return no;
      return e->ahead.contains(e->recorded) ? 600 : 0;
    });
  }
  static result create_stream(stream_handle& s) noexcept {
    return on("cudaStreamCreateWithPriority", [&](machine& m) { s = m.make_stream(current_device); });
  }
  static result destroy_stream(stream_handle s) noexcept {
    return on("cudaStreamDestroy", [&](machine&) { s->alive = false; });
  }
  static result query_stream(stream_handle s) noexcept {
    return on("cudaStreamQuery", [&](machine& m) {
      if (m.resolve(s)->in) return spoil(m, 900);
      if (const int no = m.unsafe()) return no;
      return m.resolve(s)->work.empty() ? 0 : 600;
    });
  }
  static result device_of(stream_handle s, int& device) noexcept {
    return on("cudaStreamGetDevice", [&](machine& m) { device = m.resolve(s)->device; });
  }
  static result wait(stream_handle s, event_handle e) noexcept {
    return on("cudaStreamWaitEvent", [&](machine& m) {
      CUstream_st* const to = m.resolve(s);
      if (to != s && m.captures_on(to->device)) return spoil(m, 906);
      if (e->in && e->in->ended) return 907;
      if (to->in && to->in != e->in) return spoil(m, e->in ? 903 : 905);
      if (e->in) {
        if (e->in->spoilt) return 901;
        to->in = e->in;
        to->tips.insert(to->tips.end(), e->tips.begin(), e->tips.end());
      } else {
        to->work.push_back([e, mark = e->recorded] { return !e->ahead.contains(mark); });
      }
      return 0;
    });
  }
  static result capture_of(stream_handle s, tutti::cuda::capture_state& c) noexcept {
    return on("cudaStreamGetCaptureInfo", [&](machine& m) {
      using enum tutti::cuda::capture_status;
      CUstream_st* const at = m.resolve(s);
      if (at != s && m.captures_on(at->device)) return 906;
      c = at->in ? tutti::cuda::capture_state{at->in->spoilt ? invalidated : active, at->in->id}
                 : tutti::cuda::capture_state{};
      return 0;
    });
  }
  static result fill_zero(void* p, std::size_t bytes, stream_handle s) noexcept {
    return on("cudaMemsetAsync", [&](machine& m) {
      m.give(m.resolve(s), [p, bytes] { return [p, bytes] { return std::memset(p, 0, bytes), true; }; });
    });
  }
  static result copy(void* to, const void* from, std::size_t bytes, stream_handle s) noexcept {
    return on("cudaMemcpyAsync", [&](machine& m) {
      m.give(m.resolve(s), [=] { return [=] { return std::memcpy(to, from, bytes), true; }; });
    });
  }
  static result exchange_capture_mode(tutti::cuda::capture_mode& mode) noexcept {
    std::swap(mode, capture_mode);
    return result::success;
  }

  static result allocate(void*& p, std::size_t bytes) noexcept { return take("cudaMalloc", p, bytes); }
  static result deallocate(void* p) noexcept {
    {
      const std::scoped_lock guard{machine::here().mutex};
      machine::here().log.push_back({.what = "cudaFree", .out = p});
    }
    return give_back("cudaFree", p);
  }
  static result allocate_host(void*& p, std::size_t bytes) noexcept { return take("cudaMallocHost", p, bytes); }
  static result deallocate_host(void* p) noexcept { return give_back("cudaFreeHost", p); }

  static const char* name(result r) noexcept {
    return r == result::no_device ? "cudaErrorNoDevice" : "cudaErrorIllegalAddress";
  }
  static const char* words(result r) noexcept {
    return r == result::no_device ? "no CUDA-capable device is detected" : "an illegal memory access was encountered";
  }

 private:
  static int spoil(machine& m, int code) {
    for (const auto& g : m.captures) g->spoilt = true;
    ++m.misuses;
    return code;
  }
  static result take(const char* name, void*& p, std::size_t bytes) noexcept {
    return on(name, [&](machine& m) {
      if (const int no = m.unsafe()) return no;
      m.memory.insert(p = ::operator new(bytes));
      return 0;
    });
  }
  static result give_back(const char* name, void* p) noexcept {
    return on(name, [&](machine& m) {
      if (const int no = m.unsafe()) return no;
      if (m.memory.erase(p) != 0)
        ::operator delete(p);
      else
        ++m.misuses;
      return 0;
    });
  }
  template <class F>
  static result on(const char* name, F f) noexcept {
    machine& m = machine::here();
    const std::scoped_lock guard{m.mutex};
    m.advance();
    if (const int code = m.verdict(name)) return static_cast<result>(code);
    int code = 0;
    if constexpr (requires { static_cast<int>(f(m)); })
      code = f(m);
    else
      f(m);
    m.advance();
    return static_cast<result>(code);
  }
};
static_assert(tutti::cuda::moving_api<cuda>);

}  // namespace fake
