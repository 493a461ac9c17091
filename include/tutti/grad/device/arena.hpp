#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/backend/nccl/memory.hpp>
#include <tutti/backend/nccl/shutdown.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/event_pool.hpp>
#include <tutti/cuda/stream.hpp>
#include <tutti/cuda/types.hpp>
#include <tutti/grad/pass/placement.hpp>

namespace tutti::grad {

/// The memory of all gradients on a device, the counterpart of `arena`: every gradient is a view into its bucket.
/// Behind the buckets lie a hook's scratch memory and the flag, one float. It is allocated by NCCL if NCCL can, and
/// registered by enroll(); see basic_nccl_memory. It owns the stream in which a reducer prepares buckets for sending.
/// Zero at first. The constructor waits for the device; other calls do not. Errors: those of placement, error{device}
/// and {out_of_resources}.
template <nccl_functions Api>
  requires cuda::moving_api<typename Api::cuda>
class device_arena : public placement {
  using R = typename Api::cuda;

 public:
  /// Allocates and clears the memory of `p`, the plan of `shapes`; `scratch` has the bytes that a hook needs for each
  /// bucket. Does not wait for other ranks. Memory that the device still uses after nccl_options::patience is leaked.
  template <class Comm>
  device_arena(Comm& devices, std::span<const parameter_shape> shapes, plan p, std::span<const std::size_t> scratch)
      : placement(shapes, std::move(p)),
        device_(devices.backend().device()),
        patience_(devices.backend().driver().place().patience),
        stream_(device_),
        events_(device_),
        used_(device_),
        memory_(devices, size_with(scratch), nccl_registration::later) {
    fill(0, scratch_.back() + sizeof(float), stream_);
    copy(at(scratch_.back()) + sizeof(float), reinterpret_cast<const std::byte*>(&raised), sizeof raised, stream_);
    for (const deadline limit = after(patience_); !filled(limit);) std::this_thread::yield();
  }
  device_arena(device_arena&&) = default;
  device_arena& operator=(device_arena&&) = default;  // members swap
  ~device_arena() {
    const deadline limit = after(patience_);
    if (memory_.span().data()) wait_for_users(limit);
    if (kept_.span().data()) tutti::detail::free_bounded(std::move(kept_), limit);
  }

  /// Registers the memory. Called by all ranks after each has constructed its arena. Blocks; see
  /// basic_nccl_memory::enroll.
  template <class Comm>
  void enroll(Comm& devices) {
    memory_.enroll(devices);
  }
  [[nodiscard]] bool registered() const noexcept { return memory_.registered(); }

  /// Returns the gradient of a parameter, by its index in the order of registration.
  template <number T>
  [[nodiscard]] cuda::device_span<T> gradient(std::size_t parameter) const {
    const place& p = of(parameter, dtype_of<T>());
    return {reinterpret_cast<T*>(at(p.offset)), p.count};
  }
  /// Returns a whole bucket, with padding of zeros between its gradients.
  template <number T>
  [[nodiscard]] cuda::device_span<T> bucket(std::size_t b) const noexcept {
    return {reinterpret_cast<T*>(at(start_of(b))), layout().buckets[b].count};
  }
  [[nodiscard]] cuda::device_span<std::byte> scratch(std::size_t b) const noexcept {
    return {at(scratch_[b]), scratch_[b + 1] - scratch_[b]};
  }
  [[nodiscard]] cuda::device_span<float> flag() const noexcept {
    return {reinterpret_cast<float*>(at(scratch_.back())), 1};
  }

  /// Returns the arena's own stream. Work in it runs after the work that follow() has named. follow() throws
  /// usage_error if its stream is being captured.
  [[nodiscard]] stream_ref stream() const noexcept { return stream_; }
  void follow(stream_ref s) {
    refuse_capture(s, "mark");
    const cuda::basic_device_guard<R> guard{device_};
    auto e = events_.acquire();
    e.record(handle_of(s));
    e.join(stream_.native());
    events_.release(std::move(e));
  }
  /// Records that a user's stream has been given work on the gradients; the destructor waits for that work.
  void used_by(stream_ref s) noexcept try {
    const cuda::basic_device_guard<R> guard{device_};
    used_.record(handle_of(s));
  } catch (const error&) {  // the device has failed
  }
  /// Throws usage_error if the stream is being captured into a graph, or if it is the default stream while another one
  /// is captured. The capture stays valid.
  void refuse_capture(stream_ref s, const char* call) const {
    const cuda::basic_device_guard<R> guard{device_};
    cuda::capture_state is;
    const cuda::result r = R::capture_of(handle_of(s), is);
    if (r == cuda::result::capture_implicit)
      throw usage_error(std::string(call) +
                        ": a stream is being captured into a graph, and this has the default stream, which cannot be "
                        "used meanwhile; pass another one");
    if (cuda::is_of_capture(r) || is.now != cuda::capture_status::none)
      throw usage_error(std::string(call) +
                        ": a pass cannot be captured into a graph, as its weights and its end travel among hosts; "
                        "capture an all_reduce of the communicator instead");
    cuda::check<R>(r, "cudaStreamGetCaptureInfo", device_);
  }
  /// Returns an event behind all work of the arena's stream so far. Give it back by unmark().
  [[nodiscard]] cuda::basic_event<R> mark() {
    auto e = events_.acquire();
    e.record(stream_.native());
    return e;
  }
  void unmark(cuda::basic_event<R>&& e) noexcept { events_.release(std::move(e)); }
  /// Returns the handle of a stream_ref; an empty one is the default stream of the current device.
  [[nodiscard]] static cuda::stream_handle handle_of(stream_ref s) noexcept {
    return s ? s.native() : cuda::default_stream();
  }

  /// Sets all gradients and the flag to zero, in the stream; scratch memory stays. The functions from here to
  /// copy_from() enqueue work in a stream and return.
  void clear(stream_ref s) {
    fill(0, bytes(), s);
    clear_flag(s);
  }
  void clear_flag(stream_ref s) { fill(scratch_.back(), sizeof(float), s); }
  /// Sets the flag to 1, by a copy on the device.
  void raise_flag() { copy(at(scratch_.back()), at(scratch_.back()) + sizeof(float), sizeof(float), stream_); }
  void zero_bucket(std::size_t b) {
    fill(start_of(b), layout().buckets[b].count * size_of(layout().buckets[b].type), stream_);
  }
  void zero(std::size_t parameter) { fill(of(parameter).offset, of(parameter).bytes(), stream_); }
  /// Sets a gradient to zero and saves its value for restore(). The first call allocates as much memory as all
  /// gradients have.
  void keep(std::size_t parameter) {
    if (!kept_.span().data()) kept_ = {device_, bytes()};
    const place& p = of(parameter);
    copy(kept_.span().data() + p.offset, at(p.offset), p.bytes(), stream_);
    zero(parameter);
  }
  void restore(std::size_t parameter, stream_ref s) {
    const place& p = of(parameter);
    copy(at(p.offset), kept_.span().data() + p.offset, p.bytes(), s);
  }
  /// Copies the values of all gradients from an arena of the same parameters.
  void copy_from(const device_arena& other) {
    for (std::size_t i = 0; i < size(); ++i)
      copy(at(of(i).offset), other.at(other.of(i).offset), of(i).bytes(), stream_);
  }
  /// Returns true if the arena's stream has no work left. Throws error{timed_out} if it still has some after `limit`.
  [[nodiscard]] bool filled(deadline limit) const {
    if (stream_.done()) return true;
    if (clock::now() <= limit) return false;
    throw error{{errc::timed_out}, "the device has not filled the gradients' memory in time; what else runs on it?"};
  }

 private:
  void wait_for_users(deadline limit) const noexcept try {
    while ((!used_.done() || !stream_.done()) && clock::now() < limit) std::this_thread::yield();
  } catch (const error&) {  // nothing runs on a device that has failed
  }
  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept { return memory_.span().data() + offset; }
  [[nodiscard]] std::size_t size_with(std::span<const std::size_t> scratch) {
    std::size_t end = bytes();
    scratch_.push_back(end);
    for (const std::size_t n : scratch)
      scratch_.push_back(end += (n + slot_alignment - 1) / slot_alignment * slot_alignment);
    return end + slot_alignment;
  }
  void fill(std::size_t offset, std::size_t bytes, stream_ref s) {
    if (bytes == 0) return;
    const cuda::basic_device_guard<R> guard{device_};
    cuda::check<R>(R::fill_zero(at(offset), bytes, handle_of(s)), "cudaMemsetAsync", device_);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, stream_ref s) {
    if (bytes == 0) return;
    const cuda::basic_device_guard<R> guard{device_};
    cuda::check<R>(R::copy(to, from, bytes, handle_of(s)), "cudaMemcpyAsync", device_);
  }

  static constexpr float raised = 1;

  int device_;
  duration patience_;
  std::vector<std::size_t> scratch_;  // offset of each bucket's; then those of the flag and a constant 1
  cuda::basic_stream<R> stream_;
  cuda::basic_event_pool<R> events_;
  cuda::basic_event<R> used_;
  basic_nccl_memory<std::byte, Api> memory_;
  cuda::basic_device_memory<std::byte, R> kept_;
};

}  // namespace tutti::grad
