#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl/driver.hpp>
#include <tutti/backend/nccl/feature.hpp>
#include <tutti/backend/nccl/shutdown.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti {

/// Tag for memory that its owner registers later, by enroll().
enum class nccl_registration : std::uint8_t { later };

/// Memory of a communicator's device, uninitialised, allocated by NCCL and registered with it, so that its collectives
/// use their fast paths for such memory: for buffers that are used in every step. Owning; move-only, members swap. If
/// this NCCL has no such memory (2.27 and newer have), it is cudaMalloc's, and everything works as well. The destructor
/// waits for the device's work, as cudaFree does, at most nccl_options::patience; then the memory is leaked.
/// Registration and the destructor of registered memory poll the engine, so coroutines may resume inside them.
template <element T, nccl_functions Api>
class basic_nccl_memory {
  using driver = nccl_driver<Api>;
  using runtime = typename Api::cuda;

 public:
  /// Allocates and registers `count` elements, the same on all ranks of the communicator. Collective, in order with its
  /// operations. Blocks for at most the communicator's timeout; with nccl_calls::blocking, for as long as NCCL waits
  /// for the peers, as in the first operation of a kind. Operations on the memory must have ended before it does. It
  /// may outlive the communicator, whose end then waits for it. Throws error{out_of_resources} for lack of memory,
  /// {device} for another refusal of the device, and the communicator's failure.
  template <class Communicator>
  basic_nccl_memory(Communicator& of, std::size_t count) : basic_nccl_memory(of, count, nccl_registration::later) {
    enroll(of);
  }
  /// Allocates without registration, so not collective: for ranks that agree that all have memory before any of them
  /// waits for others.
  template <class Communicator>
  basic_nccl_memory(Communicator& of, std::size_t count, nccl_registration)
      : held_(std::make_unique<held>(of.backend().shared_driver(), count)) {}
  basic_nccl_memory(basic_nccl_memory&&) noexcept = default;
  basic_nccl_memory& operator=(basic_nccl_memory&& other) noexcept {
    held_.swap(other.held_);
    return *this;
  }

  /// Registers memory that was constructed with nccl_registration::later, once. Collective and blocking, with the
  /// errors of the constructor. With nonblocking calls, a refusal of the memory by NCCL becomes a failure of the
  /// communicator.
  template <class Communicator>
  void enroll(Communicator& of) {
    driver& d = *held_->owner;
    if (!held_->data || *held_->window || !nccl_has<Api>(nccl_feature::windows, d.place().version)) return;
    auto r = nccl_result::success;
    const status s =
        d.call_while_idle("ncclCommWindowRegister", after(of.timeout()), held_->window, [&](nccl_comm comm) {
          return r = Api::register_window(comm, held_->data, held_->count * sizeof(T), *held_->window);
        });
    if (r != nccl_result::success && r != nccl_result::in_progress) *held_->window = nullptr;  // then without
    if (s.ok()) return;
    // The failure may be that of another rank.
    const bool refused = s.code == errc::device || s.code == errc::timed_out;
    throw error{s,
                "memory could not be registered with NCCL: " +
                    (d.words().empty() ? category().message(static_cast<int>(s.code)) : d.words()) +
                    (refused ? "; if NCCL refuses it as a window, NCCL_WIN_ENABLE=0 on all ranks does without" : "")};
  }

  [[nodiscard]] cuda::device_span<T> span() const noexcept {
    return held_ ? cuda::device_span<T>{static_cast<T*>(held_->data), held_->count} : cuda::device_span<T>{};
  }
  /// Returns true if NCCL has registered it; else it is ordinary memory.
  [[nodiscard]] bool registered() const noexcept { return held_ && *held_->window; }

 private:
  struct held {
    held(std::shared_ptr<driver> d, std::size_t n) : owner(std::move(d)), count(n) {
      if (n == 0) return;
      const nccl_place& at = owner->place();
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
    // NCCL has one result for all errors of cuMemCreate; only its message says which one it was.
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
    // Freeing memory of cudaMalloc's waits for all work of the device, and that may hang after a failure. NCCL's
    // does not promise to wait, so a byte of cudaMalloc's, which lies beside it, is freed first.
    ~held() {
      if (!data) return;
      const nccl_place& at = owner->place();
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
      static_cast<void>(
          owner->call_while_idle("ncclCommWindowDeregister", after(owner->place().patience), nullptr,
                                 [this](nccl_comm comm) { return Api::deregister_window(comm, *window); }));
    } catch (const error&) {  // no such device any more
    }

    std::shared_ptr<driver> owner;
    std::size_t count;
    void* data = nullptr;
    std::optional<cuda::basic_device_memory<std::byte, runtime>> fence;     // if the memory is NCCL's
    std::shared_ptr<nccl_window> window = std::make_shared<nccl_window>();  // written by NCCL later
  };
  std::unique_ptr<held> held_;
};

}  // namespace tutti
