#pragma once
#include <memory>
#include <utility>
#include <vector>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl/place.hpp>
#include <tutti/backend/nccl/shutdown.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/cuda/relaxed_capture.hpp>

namespace tutti::detail {

/// A communicator of NCCL from the call that begins it to the one that ends it. No call here waits for another rank
/// except bye(), which has limits. Memory that NCCL may still write to is leaked rather than freed.
template <nccl_functions Api>
class nccl_connection {
 public:
  [[nodiscard]] nccl_comm comm() const noexcept { return ended_ ? nullptr : comm_now(); }
  /// Returns true if it has begun and not ended.
  [[nodiscard]] explicit operator bool() const noexcept { return begun_ && !ended_; }

  nccl_result begin(const nccl_place& at, const nccl_unique_id& id, nccl_calls how) {
    made_ = std::make_shared<made>();
    const nccl_result r = Api::init(made_->comm, at.size, id, at.rank, how);
    begun_ = there_ = made_->comm != nullptr;
    return r;
  }
  /// Begins a communicator of the ranks of `whole` except the dead, and takes over `whole`.
  nccl_result begin_from(nccl_comm whole, std::vector<int> dead, nccl_calls how) {
    made_ = std::make_shared<made>();
    made_->whole = whole;
    begun_ = true;
    const nccl_result r = Api::shrink(whole, dead.data(), static_cast<int>(dead.size()), made_->comm, how);
    // NCCL returns success even if it has only begun, and then there is no communicator yet.
    return r == nccl_result::success || r == nccl_result::in_progress ? supported() : r;
  }
  /// Keeps memory that NCCL may write to until NCCL is done with the communicator, or for good if that is leaked.
  void keep(std::shared_ptr<void> written) noexcept { made_->written = std::move(written); }
  /// Returns the communicator's present state in NCCL.
  [[nodiscard]] nccl_result supported() noexcept {
    nccl_result state = nccl_result::success;
    const nccl_result r = Api::async_error(there_ ? made_->comm : made_->whole, state);
    if (r != nccl_result::success) return r;
    if (state == nccl_result::success && !there_) {
      if (!made_->comm) return nccl_result::internal;
      there_ = true;
      discard_whole();
    }
    return state;
  }

  /// Stops all operations in flight, on a thread of its own; after a revoke, recover() may return the communicator.
  void stop(nccl_halt how, deadline limit) noexcept {
    if (!*this) return;
    ended_ = true;
    end([m = made_, comm = comm_now(), how, limit] {
      if (comm) nccl_stop<Api>(comm, how, limit, m->left);
      if (m->whole) static_cast<void>(Api::abort(m->whole));
    });
  }
  /// Returns true if stop() has ended, or nothing was begun.
  [[nodiscard]] bool stopped() const noexcept { return ending_.ended(); }
  /// Returns the revoked communicator, which the caller then owns; null if there is none, or it did not stop in time.
  [[nodiscard]] nccl_comm recover(deadline limit) noexcept {
    return made_ && ending_.wait(limit) ? made_->left.take() : nullptr;
  }

  /// Ends the communicator, in good order if nothing failed. Returns false if a thread of NCCL's had to be left behind.
  bool bye(duration patience) noexcept {
    if (*this) {
      ended_ = true;
      end([m = made_, comm = comm_now(), limit = after(patience / 2)] {
        if (comm) nccl_shut_down<Api>(comm, limit);
        if (m->whole) static_cast<void>(Api::abort(m->whole));
      });
    }
    if (!ending_.wait(after(patience)) || !discarding_.wait(after(patience))) return false;
    const nccl_comm left = made_ ? made_->left.take() : nullptr;
    if (!left) return true;
    end([left] { static_cast<void>(Api::abort(left)); });
    return ending_.wait(after(patience));
  }

 private:
  using any_capture = cuda::relaxed_capture<typename Api::cuda>;
  struct made {
    nccl_comm comm = nullptr;   // of a shrunk one, written later by NCCL: not read before
    nccl_comm whole = nullptr;  // from which a shrunk one is made, until then
    nccl_remains left;
    std::shared_ptr<void> written;
  };

  /// Aborts the larger communicator once the shrunk one exists and does not need it.
  void discard_whole() noexcept try {
    discarding_.start([whole = made_->whole] {
      const any_capture any_time;
      static_cast<void>(Api::abort(whole));
    });
    made_->whole = nullptr;
  } catch (...) {  // no memory: it ends with the shrunk one
  }
  [[nodiscard]] nccl_comm comm_now() const noexcept { return there_ ? made_->comm : nullptr; }
  template <class F>
  void end(F f) noexcept {
    try {
      ending_.start([f] {
        const any_capture any_time;  // the thread waits for the device, and frees
        f();
      });
    } catch (...) {  // no memory: the communicator is leaked
    }
  }

  std::shared_ptr<made> made_;
  bool begun_ = false, there_ = false, ended_ = false;
  bounded_call ending_, discarding_;
};

}  // namespace tutti::detail
