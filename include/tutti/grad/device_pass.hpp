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

/// The end of a pass on a device: all of it is under way, and the host is free. Ends in exactly one way, and only then
/// may the next pass begin; dropped, it drops the pass. Each tells what all ranks do with the gradients, for which it
/// waits until the hosts of all ranks have come to their finish(), as skip() may have been called on one; not for any
/// device. Throws the error of a collective, or what the world has failed with since.
template <class Reducer>
class [[nodiscard("join a stream, co_await it, or call wait(): dropped, it aborts")]] landing
    : public detail::pass_base<Reducer> {
 public:
  /// What is given to this stream from now on comes after all buckets: the gradients are the mean there. Without a
  /// stream: the default stream. usage_error, after which it can be joined elsewhere, where that is being captured into
  /// a graph; but `finish().join(s)` then drops it.
  step join(stream_ref s) && {
    if (ended_) return known_;
    Reducer& owner = this->owner();
    owner.refuse_capture(s, "join");
    return owner.join(std::move(*this), s);
  }
  /// Blocks until the device is done with them, driving the engine.
  step wait() && { return ended_ ? known_ : this->owner().wait(std::move(*this)); }
  /// The same without blocking; resumes where the engine is driven.
  auto operator co_await() && {
    using inner = decltype(std::declval<task<step>>().operator co_await());
    struct awaiter {
      task<step> whole;
      inner waits = std::move(whole).operator co_await();
      [[nodiscard]] bool await_ready() const noexcept { return waits.await_ready(); }
      bool await_suspend(std::coroutine_handle<> h) { return waits.await_suspend(h); }
      step await_resume() { return waits.await_resume(); }
    };
    return awaiter{arrival(std::move(*this))};
  }

 private:
  friend Reducer;
  explicit landing(detail::pass_base<Reducer>&& of) noexcept : detail::pass_base<Reducer>(std::move(of)) {}
  landing(detail::pass_base<Reducer>&& of, step known) noexcept
      : detail::pass_base<Reducer>(std::move(of)), ended_(true), known_(known) {}

  static task<step> arrival(landing given) {
    landing mine = std::move(given);
    if (mine.ended_) co_return mine.known_;
    Reducer& owner = mine.owner();
    co_return co_await owner.arrive(std::move(mine));
  }

  bool ended_ = false;  // of a pass that accumulates
  step known_ = step::apply;
};

/// One backward pass on a device; see pass for what marks mean. Ends with finish().
template <class Reducer>
class [[nodiscard]] device_pass : public detail::pass_base<Reducer> {
 public:
  /// This rank's gradient of one parameter is complete when all that the stream holds now is done: begin()'s, or this
  /// one. In any order, each exactly once. Buckets that are complete leave; nothing waits for the device, but the first
  /// bucket for the hosts of all ranks to have begun. The gradient belongs to the reducer until the pass has landed.
  /// Errors: as of pass::ready; also a usage_error where that stream is being captured into a graph.
  void ready(std::size_t parameter) { this->owner().ready(parameter); }
  void ready(std::size_t parameter, stream_ref after) { this->owner().ready(parameter, after); }

  /// Lets all buckets leave that have not, and returns their end: `finish().join(stream)`, or `co_await finish()`.
  /// Consumes the pass. A parameter that was never marked is a usage_error that names it; the world is then aborted.
  [[nodiscard]] landing<Reducer> finish() {
    Reducer& owner = this->owner();
    owner.refuse_captured_mark("finish");
    return owner.finish(std::move(*this));
  }

 private:
  friend Reducer;
  using detail::pass_base<Reducer>::pass_base;
};

}  // namespace tutti::grad
