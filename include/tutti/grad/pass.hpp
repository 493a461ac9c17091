#pragma once
#include <cstddef>
#include <span>
#include <utility>

#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/pass_link.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

namespace detail {

/// The user's end of a pass, with the marks that are the same for any memory.
template <class Reducer>
class pass_base {
 public:
  /// Marks a parameter that this pass does not use, instead of ready(): it contributes zero. If the reducer tracks
  /// unused parameters, a gradient that no rank uses keeps its value, and used() returns false; else it becomes the
  /// mean.
  void unused(std::size_t parameter) { owner().unused(parameter); }

  /// Calls unused() for every parameter that has not been marked and is not delayed. A rank that has run out of samples
  /// begins with weight 0 and calls only this. Call it after all other marks.
  void rest_unused() { owner().rest_unused(); }

  /// Makes all ranks skip this step, as this rank cannot use its gradients. Marks all that has not been marked, so that
  /// a backward pass may go on: its ready() and unused() then do nothing. The gradients of all ranks are worthless
  /// after finish(), which returns `why` on all ranks. Call it before the last mark, because the last bucket carries
  /// it; later it is a usage_error, which changes nothing.
  void skip(step why) { owner().skip(why); }

 protected:
  explicit pass_base(Reducer& r) noexcept : owner_(&r), link_(r.pass_.link()) {}
  pass_base(pass_base&&) noexcept = default;
  pass_base& operator=(pass_base&&) = delete;
  ~pass_base() {
    if (link_.holds()) owner_->drop();
  }

  [[nodiscard]] Reducer& owner() const {
    if (!link_.holds()) throw usage_error("pass: it has ended, or was moved from; begin() another one");
    return *owner_;
  }

 private:
  Reducer* owner_;
  pass_link link_;
};

}  // namespace detail

/// One backward pass: its calls tell the reducer which gradients are complete; it ends with `co_await pass.finish()`.
/// If it is dropped without finish(), by an exception in the backward pass, it aborts the communicator, since the peers
/// would wait forever. A pass that accumulates sends nothing; if it is dropped, all ranks skip the next step, as its
/// partial sums stay in the gradients.
template <class Reducer>
class [[nodiscard]] pass : public detail::pass_base<Reducer> {
 public:
  /// Marks this rank's gradient of one parameter, by its index in the order of registration, as complete. Call it once
  /// per parameter, in any order; delayed parameters need no mark. Starts the buckets that may be launched, and polls
  /// the engine once, so that earlier buckets make progress. The first launch waits until all ranks have begun, unless
  /// the hook leaves the division to the reducer and the bucket is not of float16. The gradient belongs to the reducer
  /// until finish() has ended. Errors: usage_error for a wrong mark, which changes nothing; an exception of the hook,
  /// or an error while waiting, ends the pass.
  void ready(std::size_t parameter) { this->owner().ready(parameter); }

  /// Marks a gradient that lies in the caller's memory, as if `from` had been copied to gradient(parameter). `from` is
  /// read until finish() has ended or the pass is dropped, and must not change before: declare it before the pass, so
  /// that an exception drops the pass first. The mean is in gradient(parameter), which must not be touched until then.
  /// For models that own their gradients, at twice the memory. If ranks share memory and the hook `gathers`, as
  /// sum_hook, mean_hook and divide_after_hook do, a rank copies only the (n - 1)/n of the bucket that others read,
  /// without reading the destination, and multiplies as it copies; else it copies all. In a pass that accumulates,
  /// `from` is copied at once and replaces the sum so far. Also a usage_error: elements of another type or number, and
  /// an array in the reducer's own memory that is not this gradient.
  template <std::ranges::contiguous_range R>
    requires std::ranges::sized_range<R> && std::ranges::borrowed_range<R> && number<std::ranges::range_value_t<R>>
  void ready(std::size_t parameter, R&& from) {
    using T = std::ranges::range_value_t<R>;
    this->owner().ready(parameter, std::span<const T>{std::ranges::data(from), std::ranges::size(from)});
  }

  /// Ends the pass: completes when all gradients hold their weighted mean over the ranks, and returns what all ranks do
  /// with them. For a pass that accumulates, it returns what this rank has asked for so far, which the others do not
  /// know yet. Consumes the pass; a task that is dropped before its end drops the pass. A parameter that was never
  /// marked is a usage_error that names it; the communicator is then aborted. Also throws the error of a collective.
  task<step> finish() { return this->owner().finish(std::move(*this)); }

 private:
  friend Reducer;
  using detail::pass_base<Reducer>::pass_base;
};

}  // namespace tutti::grad
