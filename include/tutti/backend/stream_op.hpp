#pragma once
#include <utility>

#include <tutti/async/concepts.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/communicator_core.hpp>
#include <tutti/backend/unjoined_end.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/core/stream_ref.hpp>

namespace tutti {

/// A collective on devices in flight: an op that can also end by join(). That is the only end for an operation whose
/// stream is being captured into a graph: it runs when the graph is launched, so there is nothing to wait for.
template <class B>
class [[nodiscard]] basic_stream_op : public op {
 public:
  explicit basic_stream_op(op_state& s) noexcept : op(s) {}
  basic_stream_op(basic_stream_op&&) noexcept = default;
  basic_stream_op& operator=(basic_stream_op&& other) noexcept {
    if (this != &other) {
      drop();
      op::operator=(std::move(other));
    }
    return *this;
  }
  /// Waits, as op's destructor does. For an operation that was captured, the next operation throws the error.
  ~basic_stream_op() { drop(); }

  /// Waits as op does. Throws usage_error for an operation that was captured, and in its group (see nccl_group).
  void wait() {
    check_group();
    this->slot_.wait();
    take(this->slot_);
  }
  void operator co_await() & = delete;
  auto operator co_await() && {
    check_group();
    struct awaiter : detail::op_awaiter_base {
      using op_awaiter_base::op_awaiter_base;
      void await_resume() { basic_stream_op::take(finish()); }
    };
    return awaiter{std::move(this->slot_)};
  }

  /// Ends the handle: later work of the stream runs after the operation on the device. Without a stream: the default
  /// stream. The host does not wait for that; it waits until NCCL has put the operation into its own stream, which is
  /// soon unless ranks have yet to connect. The buffers, and a layout's ranges, may be used in that stream afterwards;
  /// those of a captured operation belong to the graph as long as that is launched. Drives the engine if it has to
  /// wait, and now and then to notice lost peers: coroutines may resume here. Throws the communicator's failure if
  /// there is one; a later failure is thrown by the next operation or join. Throws usage_error if `to` is being
  /// captured into a graph that the operation is no part of, for which it then waits, or if the operation was captured
  /// and `to` cannot be part of that capture; invalidates no capture.
  void join(stream_ref to) && {
    check_group();
    detail::op_slot mine = std::move(this->slot_);
    const status s = backend_of(*mine).join(*mine, to);
    if (s.ok()) return;
    mine.wait();
    take(mine);
  }

 private:
  static B& backend_of(op_state& s) noexcept { return static_cast<communicator_core<B>*>(s.owner)->backend(); }

  static void take(detail::op_slot& slot) {
    if constexpr (requires(B& b) { b.captured(*slot); })
      if (B& b = backend_of(*slot); !slot->result.ok() && b.captured(*slot)) {
        const detail::op_slot mine = std::move(slot);
        b.let_go(*mine, detail::unjoined_end::wait);
        throw usage_error(mine->owner->describe(*mine).what());
      }
    op::take(slot);
  }
  void check_group() const {
    this->slot_.check();
    if constexpr (requires(B& b) { b.check_group(*this->slot_); })
      if (!this->slot_->done()) backend_of(*this->slot_).check_group(*this->slot_);
  }
  void drop() noexcept {
    if constexpr (requires(B& b) { b.withdraw(*this->slot_); })
      if (this->slot_.holds() && !this->slot_->done()) backend_of(*this->slot_).withdraw(*this->slot_);
    if constexpr (requires(B& b) { b.captured(*this->slot_); }) {
      if (!this->slot_.holds()) return;
      this->slot_.wait();
      if (!this->slot_->result.ok()) backend_of(*this->slot_).let_go(*this->slot_, detail::unjoined_end::drop);
    }
  }
};

template <class B>
inline constexpr bool in_flight_when_made<basic_stream_op<B>> = true;

}  // namespace tutti
