#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl_driver.hpp>
#include <tutti/backend/nccl_farewell.hpp>
#include <tutti/backend/nccl_feature.hpp>
#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti {

/// For memory that its maker registers by enroll().
enum class nccl_registration : std::uint8_t { later };

/// Memory of a communicator's device, uninitialised, from NCCL and registered with it, so that its collectives take
/// the short ways that they have for such memory: for buffers that are used in every step. Owns it; move-only, members
/// swap. Where this NCCL has no such memory (2.27 and newer have), it is cudaMalloc's, and all works as well. Its end
/// waits for the device's work, as cudaFree does, within nccl_options::patience; then it is left behind. Registration
/// and the end of what is registered poll the engine, so that coroutines may resume inside them.
template <element T, nccl_functions Api>
class basic_nccl_memory {
  using driver = nccl_driver<Api>;
  using runtime = typename Api::cuda;

 public:
  /// `count` elements, the same on all ranks of that communicator. Collective, in order with its operations; blocks for
  /// at most the communicator's timeout, but with nccl_calls::blocking for as long as NCCL waits for the peers, as the
  /// first operation of a kind does. Operations on it must have ended when it does; it may outlive the communicator,
  /// whose end then waits for it. Throws error{out_of_resources} for want of memory, {device} for what else the device
  /// refuses, and the communicator's failure.
  template <class Communicator>
  basic_nccl_memory(Communicator& of, std::size_t count) : basic_nccl_memory(of, count, nccl_registration::later) {
    enroll(of);
  }
  /// Not registered yet, and so of this rank alone: where ranks agree that all have memory before any waits for others.
  template <class Communicator>
  basic_nccl_memory(Communicator& of, std::size_t count, nccl_registration)
      : held_(std::make_unique<held>(of.backend().shared_driver(), count)) {}
  basic_nccl_memory(basic_nccl_memory&&) noexcept = default;
  basic_nccl_memory& operator=(basic_nccl_memory&& other) noexcept {
    held_.swap(other.held_);
    return *this;
  }

  /// Registers what was made to be registered later, once. Collective and blocking, with the errors of a communicator's
  /// failure, as the constructor. One is that NCCL refuses the memory where its calls do not block: it says so later.
  template <class Communicator>
  void enroll(Communicator& of) {
    driver& d = *held_->home;
    if (!held_->data || *held_->window || !nccl_has<Api>(nccl_feature::windows, d.place().version)) return;
    auto r = nccl_result::success;
    const status s = d.at_rest("ncclCommWindowRegister", after(of.timeout()), held_->window, [&](nccl_comm comm) {
      return r = Api::register_window(comm, held_->data, held_->count * sizeof(T), *held_->window);
    });
    if (r != nccl_result::success && r != nccl_result::in_progress) *held_->window = nullptr;  // then without
    if (s.ok()) return;
    // The rank that met it may be another.
    const bool refused = s.code == errc::device || s.code == errc::timed_out;
    throw error{s,
                "memory could not be registered with NCCL: " +
                    (d.words().empty() ? category().message(static_cast<int>(s.code)) : d.words()) +
                    (refused ? "; if NCCL refuses it as a window, NCCL_WIN_ENABLE=0 on all ranks does without" : "")};
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
      if (n > std::size_t(-1) / sizeof(T)) cuda::check<runtime>(cuda::result::out_of_memory, "ncclMemAlloc", at.device);
      const cuda::relaxed_capture<runtime> any_time;
      const cuda::basic_device_guard<runtime> guard{at.device};
      void* p = nullptr;
      if (!nccl_has<Api>(nccl_feature::memory, at.version)) {
        cuda::check<runtime>(runtime::allocate(p, n * sizeof(T)), "cudaMalloc", at.device);
      } else {
        fence.emplace(at.device, 1);
        if (const nccl_result r = Api::allocate(p, n * sizeof(T)); r != nccl_result::success)
          refuse(r, n * sizeof(T), at);
      }
      data = p;
    }
    // NCCL has one result for all that cuMemCreate may say; what that was, only its words tell.
    [[noreturn]] static void refuse(nccl_result r, std::size_t bytes, const nccl_place& at) {
      const char* const last = Api::last_error(nullptr);
      const std::string why = last ? last : "";
      const bool full = why.find("out of memory") != std::string::npos;
      throw error{{full ? errc::out_of_resources : errc::device, 0, at.world_rank, static_cast<std::uint64_t>(r)},
                  "ncclMemAlloc of " + std::to_string(bytes) + " bytes on device " + std::to_string(at.device) +
                      " failed: " + Api::words(r) + (why.empty() ? "" : " (" + why + ")") +
                      (full ? "; free device memory, or use smaller buckets"
                            : "; where the driver does not permit cuMemCreate, as in some containers, set "
                              "NCCL_CUMEM_ENABLE=0 on all ranks")};
    }
    held(const held&) = delete;
    held& operator=(const held&) = delete;
    // To free memory of cudaMalloc's waits for all work of the device, and after a failure some may hang. NCCL's does
    // not promise to wait: the byte of cudaMalloc's beside it goes first.
    ~held() {
      if (!data) return;
      const nccl_place& at = home->place();
      if (fence && !detail::free_bounded(std::move(*fence), after(at.patience))) return;
      if (*window) deregister();
      call_bounded(after(at.patience), [p = data, nccl = fence.has_value(), device = at.device] {
        try {
          const cuda::relaxed_capture<runtime> any_time;
          const cuda::basic_device_guard<runtime> guard{device};
          if (nccl)
            static_cast<void>(Api::deallocate(p));
          else
            static_cast<void>(runtime::deallocate(p));
        } catch (const error&) {  // no such device any more
        }
      });
    }
    void deregister() noexcept try {
      static_cast<void>(home->at_rest("ncclCommWindowDeregister", after(home->place().patience), nullptr,
                                      [this](nccl_comm comm) { return Api::deregister_window(comm, *window); }));
    } catch (const error&) {  // no such device any more
    }

    std::shared_ptr<driver> home;
    std::size_t count;
    void* data = nullptr;
    std::optional<cuda::basic_device_memory<std::byte, runtime>> fence;     // where the memory is NCCL's
    std::shared_ptr<nccl_window> window = std::make_shared<nccl_window>();  // written by NCCL in its own time
  };
  std::unique_ptr<held> held_;
};

}  // namespace tutti
