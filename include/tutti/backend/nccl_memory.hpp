#pragma once
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl_driver.hpp>
#include <tutti/backend/nccl_feature.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti {

/// Memory of a communicator's device, uninitialised, from NCCL and registered with it, so that its collectives take
/// the short ways that they have for such memory: for buffers that are used in every step. Owns it; move-only. Where
/// this NCCL has no such memory (2.27 and newer have), it is cudaMalloc's, and all works as well.
template <element T, nccl_functions Api>
class basic_nccl_memory {
  using driver = nccl_driver<Api>;
  using runtime = typename Api::cuda;

 public:
  /// `count` elements, the same on all ranks of that communicator. Collective, in order with its operations; blocks for
  /// at most the communicator's timeout. Operations on it must have ended when it does; it may outlive the
  /// communicator, whose end then waits for it. Throws error{out_of_resources}, {device} and the communicator's
  /// failure.
  template <class Communicator>
  basic_nccl_memory(Communicator& of, std::size_t count)
      : held_(std::make_unique<held>(of.backend().shared_driver(), count)) {
    driver& d = *held_->home;
    const std::size_t bytes = count * sizeof(T);
    if (!held_->data || !nccl_has<Api>(nccl_feature::windows, d.place().version)) return;
    auto r = nccl_result::success;
    const status s = d.at_rest("ncclCommWindowRegister", after(of.timeout()), held_->window, [&](nccl_comm comm) {
      return r = Api::register_window(comm, held_->data, bytes, *held_->window);
    });
    if (r != nccl_result::success && r != nccl_result::in_progress) *held_->window = nullptr;  // then without
    if (!s.ok())
      throw error{s, "memory could not be registered with NCCL: " +
                         (d.words().empty() ? category().message(static_cast<int>(s.code)) : d.words())};
  }

  [[nodiscard]] cuda::device_span<T> span() const noexcept {
    return held_ ? cuda::device_span<T>{static_cast<T*>(held_->data), held_->count} : cuda::device_span<T>{};
  }
  /// NCCL has taken it; else it is memory as any other.
  [[nodiscard]] bool registered() const noexcept { return held_ && *held_->window; }

 private:
  struct held {
    held(std::shared_ptr<driver> d, std::size_t n) : home(std::move(d)), count(n) {
      if (n == 0) return;
      const nccl_place& at = home->place();
      from_nccl = nccl_has<Api>(nccl_feature::memory, at.version);
      const cuda::relaxed_capture<runtime> any_time;
      const cuda::basic_device_guard<runtime> guard{at.device};
      if (n > std::size_t(-1) / sizeof(T)) {
        cuda::check<runtime>(cuda::result::out_of_memory, "ncclMemAlloc", at.device);
      } else if (!from_nccl) {
        cuda::check<runtime>(runtime::allocate(data, n * sizeof(T)), "cudaMalloc", at.device);
      } else if (const nccl_result r = Api::allocate(data, n * sizeof(T)); r != nccl_result::success) {
        throw error{{errc::out_of_resources, 0, at.world_rank, static_cast<std::uint64_t>(r)},
                    "ncclMemAlloc of " + std::to_string(n * sizeof(T)) + " bytes on device " +
                        std::to_string(at.device) + " failed: " + Api::words(r) +
                        "; free device memory, or use smaller buckets"};
      }
    }
    held(const held&) = delete;
    held& operator=(const held&) = delete;
    ~held() {
      if (!data) return;
      if (*window) deregister();
      // To free it waits for all work of the device, and after a failure some may hang.
      try {
        bounded_call freeing;
        freeing.start([p = data, nccl = from_nccl, device = home->place().device] { give_back(p, nccl, device); });
        static_cast<void>(freeing.wait(after(home->place().patience)));
      } catch (const std::exception&) {  // no memory for that: it is left behind
      }
    }
    void deregister() noexcept try {
      static_cast<void>(home->at_rest("ncclCommWindowDeregister", after(home->place().patience), nullptr,
                                      [this](nccl_comm comm) { return Api::deregister_window(comm, *window); }));
    } catch (const error&) {  // no such device any more
    }
    static void give_back(void* p, bool nccl, int device) noexcept try {
      const cuda::relaxed_capture<runtime> any_time;
      const cuda::basic_device_guard<runtime> guard{device};
      if (nccl)
        static_cast<void>(Api::deallocate(p));
      else
        static_cast<void>(runtime::deallocate(p));
    } catch (const error&) {  // no such device any more
    }

    std::shared_ptr<driver> home;
    std::size_t count;
    void* data = nullptr;
    bool from_nccl = false;
    std::shared_ptr<nccl_window> window = std::make_shared<nccl_window>();  // written by NCCL in its own time
  };
  std::unique_ptr<held> held_;
};

}  // namespace tutti
