#pragma once
#include <cstddef>
#include <span>
#include <utility>

#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

namespace detail {

template <class Reducer>
class ledger;

/// A pass as its owner holds it, and the marks that are the same in any memory.
template <class Reducer>
class pass_base {
 public:
  /// Instead of ready(): this pass does not use the parameter, and contributes zero to it. Where the reducer tracks
  /// unused parameters, a gradient that no rank uses keeps what it holds, and used() tells; else it becomes the mean.
  void unused(std::size_t parameter) { owner().unused(parameter); }

  /// unused() for every parameter that has not been marked and is not delayed. A rank that has run out of samples
  /// begins with weight 0 and calls this alone.
  void rest_unused() { owner().rest_unused(); }

  /// This rank cannot use its gradients: no rank will. Marks what has not been marked; the gradients of all ranks are
  /// worthless after finish(), which tells all of them why. Before the last mark, with which the last bucket leaves and
  /// this with it; a usage_error after it, which changes nothing.
  void skip(step why) { owner().skip(why); }

 protected:
  explicit pass_base(Reducer& r) noexcept : owner_(&r) { r.current_ = this; }
  pass_base(pass_base&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {
    if (owner_) owner_->current_ = this;
  }
  pass_base& operator=(pass_base&&) = delete;
  ~pass_base() {
    if (owner_) owner_->drop();
  }

  [[nodiscard]] Reducer& owner() const {
    if (!owner_) throw usage_error("pass: it has ended, or was moved from; begin() another one");
    return *owner_;
  }

 private:
  friend ledger<Reducer>;
  Reducer* owner_;
};

}  // namespace detail

/// One backward pass. Tells the reducer which gradients are complete; ends with `co_await pass.finish()`.
/// Dropped without it (an exception in the backward pass), it aborts the communicator: the peers would wait for ever.
/// One that accumulates sends nothing; when it is dropped all ranks skip the next step, as what it has added stays.
template <class Reducer>
class [[nodiscard]] pass : public detail::pass_base<Reducer> {
 public:
  /// This rank's gradient of one parameter, in the order of registration, is complete. In any order, each exactly once.
  /// Starts the buckets that may leave, and lets what travels already make progress. The first one waits until all
  /// ranks have begun, unless the hook leaves the division to the reducer and it is not of float16. The gradient
  /// belongs to the reducer until finish() has ended. One that is delayed needs no mark. Errors: usage_error for a
  /// wrong mark, which changes nothing; an exception of the hook, or an error while waiting, ends the pass.
  void ready(std::size_t parameter) { this->owner().ready(parameter); }

  /// The same of a gradient that lies in memory of the caller's: as if `from` had been copied to gradient(parameter).
  /// `from` is read until finish() has ended, or the pass is dropped, and must not change before: declare it before the
  /// pass, which an exception drops first then. The mean is in gradient(parameter), which nobody may touch until then,
  /// either. For models that own their gradients, with twice the memory. Where ranks share memory and the hook
  /// `gathers`, as sum_hook, mean_hook and divide_after_hook do, a rank copies only what others read, (n - 1)/n of the
  /// bucket, without reading what it overwrites, and multiplies as it copies; else all of it. In a pass that
  /// accumulates it is copied at once, and replaces what was added. Also a usage_error: elements of another type or
  /// number, and an array in the reducer's own memory that is not this gradient.
  template <std::ranges::contiguous_range R>
    requires std::ranges::sized_range<R> && std::ranges::borrowed_range<R> && number<std::ranges::range_value_t<R>>
  void ready(std::size_t parameter, R&& from) {
    using T = std::ranges::range_value_t<R>;
    this->owner().ready(parameter, std::span<const T>{std::ranges::data(from), std::ranges::size(from)});
  }

  /// Ends when all gradients hold their weighted mean over the ranks, and says what all ranks do with them; of a pass
  /// that accumulates it says what this rank has asked for so far, which the others do not know yet. Consumes
  /// the pass; a task that is dropped before its end drops the pass. A parameter that was never marked is a usage_error
  /// that names it; the communicator is then aborted. Also throws the error of a collective.
  task<step> finish() { return this->owner().finish(std::move(*this)); }

 private:
  friend Reducer;
  using detail::pass_base<Reducer>::pass_base;
};

}  // namespace tutti::grad
