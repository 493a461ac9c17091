#pragma once
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/backend/issuer.hpp>
#include <tutti/core/stream_ref.hpp>

namespace tutti {

/// A collective on devices in flight: an op with one more way to end.
template <class B>
class [[nodiscard]] basic_stream_op : public op {
 public:
  explicit basic_stream_op(op_state& s) noexcept : op(s) {}

  /// Ends the handle: what is given to the stream from now on comes after the operation on the device. The host does
  /// not wait for that; it waits for NCCL to have put the operation into its own stream, which is soon unless ranks
  /// have yet to connect. Without a stream: the default stream. The buffers, and a layout's ranges, may be used in that
  /// stream afterwards. Throws the communicator's failure if there is one; a later one is met by the next operation, or
  /// by the next join.
  void join(stream_ref to) && {
    detail::op_slot mine = std::move(this->slot_);
    const status s = static_cast<issuer<B>*>(mine->owner)->backend().join(*mine, to);
    if (s.ok()) return;
    mine.wait();
    throw mine->owner->describe(*mine);
  }
};

}  // namespace tutti
