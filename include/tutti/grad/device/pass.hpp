#pragma once
#include <tutti/config.hpp>

#include <coroutine>
#include <cstddef>
#include <utility>

#include <tutti/async/task.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/grad/pass.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

/// The end of a pass on a device: all its work is enqueued, and the host is free. End it in exactly one of three ways;
/// only then may the next pass begin. Dropped, it drops the pass. Each returns what all ranks do with the gradients.
/// For that it waits until the hosts of all ranks have called finish(), since any of them may have called skip(), but
/// for no device. Throws the error of a collective, or an error that the world has met since.
template <class Reducer>
class [[nodiscard("join a stream, co_await it, or call wait(): dropped, it aborts")]] completion
    : public detail::pass_base<Reducer> {
 public:
  /// Makes the stream wait for all buckets: for later work in it, the gradients are the mean. Without a stream: the
  /// default stream. Throws usage_error if the stream is being captured into a graph, after which it can be joined
  /// elsewhere; but `finish().join(s)` then drops it.
  step join(stream_ref s) && {
    if (ended_) return known_;
    Reducer& owner = this->owner();
    owner.refuse_capture(s, "join");
    return owner.join(std::move(*this), s);
  }
  /// Blocks until the device has completed the gradients, driving the engine.
  step wait() && { return ended_ ? known_ : this->owner().wait(std::move(*this)); }
  /// Waits as wait(), without blocking; resumes on the thread that drives the engine.
  auto operator co_await() && {
    using inner = decltype(std::declval<task<step>>().operator co_await());
    struct awaiter {
      task<step> whole;
      inner waits = std::move(whole).operator co_await();
      [[nodiscard]] bool await_ready() const noexcept { return waits.await_ready(); }
      bool await_suspend(std::coroutine_handle<> h) { return waits.await_suspend(h); }
      step await_resume() { return waits.await_resume(); }
    };
    return awaiter{wait_async(std::move(*this))};
  }

 private:
  friend Reducer;
  explicit completion(detail::pass_base<Reducer>&& of) noexcept : detail::pass_base<Reducer>(std::move(of)) {}
  completion(detail::pass_base<Reducer>&& of, step known) noexcept
      : detail::pass_base<Reducer>(std::move(of)), ended_(true), known_(known) {}

  static task<step> wait_async(completion given) {
    completion mine = std::move(given);
    if (mine.ended_) co_return mine.known_;
    Reducer& owner = mine.owner();
    co_return co_await owner.wait_async(std::move(mine));
  }

  bool ended_ = false;  // the pass accumulates
  step known_ = step::apply;
};

/// One backward pass on a device; see `pass` for the meaning of marks. Ends with finish().
template <class Reducer>
class [[nodiscard]] device_pass : public detail::pass_base<Reducer> {
 public:
  /// Marks this rank's gradient of one parameter as complete once the work that a stream holds now is done: begin()'s
  /// stream, or `after`. Call it once per parameter, in any order. Launches buckets that are complete. Does not wait
  /// for the device; the first bucket waits until the hosts of all ranks have begun. The gradient belongs to the
  /// reducer until the pass is complete. Errors: as pass::ready; also a usage_error if the stream is being captured
  /// into a graph.
  void ready(std::size_t parameter) { this->owner().ready(parameter); }
  void ready(std::size_t parameter, stream_ref after) { this->owner().ready(parameter, after); }

  /// Launches all remaining buckets, and returns the end of the pass: `finish().join(stream)`, or `co_await finish()`.
  /// Consumes the pass. A parameter that was never marked is a usage_error that names it; the world is then aborted.
  [[nodiscard]] completion<Reducer> finish() {
    Reducer& owner = this->owner();
    owner.refuse_captured_mark("finish");
    return owner.finish(std::move(*this));
  }

 private:
  friend Reducer;
  using detail::pass_base<Reducer>::pass_base;
};

}  // namespace tutti::grad
