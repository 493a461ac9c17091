#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/backend/communicator_core.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/argument_error.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/text.hpp>

namespace tutti {

namespace detail {
template <backend B>
class preparing_base;
}

/// Operation whose arguments are checked and whose algorithm is chosen once, to be started many times: `auto average =
/// world.prepare().all_reduce(gradients, mean)`, then `average.start().wait()` in every step. A start counts as a call:
/// of a collective in the same order on all ranks, of a message in the order of its tag. Other ranks need not prepare
/// theirs.
///
/// Buffers, layouts and lists of spans must outlive it, and belong to each operation from its start to its end. Counts
/// and offsets stay fixed. The spans of a list may change between two operations, if they have as many elements in all;
/// another number, or an overlap, is a usage_error before anything is sent. A start before the handle of the last one
/// has ended is a usage_error that starts nothing, on every rank alike. May be moved, also in flight. It starts
/// nothing, and throws usage_error, after it was moved away or its communicator was destroyed; a communicator may be
/// moved. Thread safety is the communicator's.
template <backend B, class Args>
class prepared {
 public:
  prepared(prepared&&) noexcept = default;
  prepared& operator=(prepared&&) noexcept = default;

  /// Starts the operation and returns its handle. Throws usage_error in the cases above, before anything is sent.
  typename detail::handle_of<B>::type start(std::source_location where = std::source_location::current()) {
    if (!issuer_)
      throw usage_error(std::string(Args::name) +
                        ": this prepared operation was moved away; start what it was moved to");
    if (life_.expired())
      throw usage_error(std::string(Args::name) +
                        ": the communicator of this prepared operation is gone; prepare it with one that lives");
    if (last_ && last_->uses.load(std::memory_order_acquire) == use_)
      who().refuse("this prepared operation was started before, at " + detail::file_and_line(started_) +
                   ", and its handle has not ended; wait for it first, or prepare another with buffers of its own");
    if constexpr (std::same_as<Args, all_reduce_coalesced_args>) check_list();
    last_ = &issuer_->issue(
        data_.count, data_.type, timeout_, where, [this](op_state&) -> auto& { return args_; }, stream_);
    use_ = last_->uses.load(std::memory_order_relaxed);
    started_ = where;
    return typename detail::handle_of<B>::type{*last_};
  }

 private:
  friend class detail::preparing_base<B>;
  prepared(communicator_core<B>& by, const detail::shape& data, const call_options& how, const Args& args)
      : issuer_(&by), life_(by.life()), data_(data), timeout_(how.timeout), stream_(how.stream), args_(args) {}

  [[nodiscard]] detail::call_context who() const noexcept {
    return detail::call_context::in(issuer_->backend(), Args::name);
  }
  // Throws unless the list has as many bytes as when it was prepared, by which it is staged, sent and cut into blocks.
  void check_list() const {
    std::size_t bytes = 0;
    bool whole = true;
    for (std::size_t i = 0; i < args_.data.size; ++i) {
      const std::size_t of_one = args_.data[i].size();
      bytes += of_one;
      whole = whole && of_one % args_.data.element_bytes == 0;
    }
    if (!whole || bytes != args_.data.bytes())
      who().refuse("this operation was prepared for buffers of " + std::to_string(args_.data.bytes()) +
                   " bytes together, but they are " + std::to_string(bytes) +
                   (whole ? "" : ", not all of whole elements") + " now; prepare another for them");
    detail::check_disjoint(who(), args_.data);
  }

  struct borrowed {
    void operator()(communicator_core<B>*) const noexcept {}
  };
  std::unique_ptr<communicator_core<B>, borrowed> issuer_;  // the communicator's; null after a move
  std::weak_ptr<const char> life_;                          // of the communicator
  detail::shape data_;
  duration timeout_;
  stream_ref stream_;
  Args args_;
  op_state* last_ = nullptr;  // the slot of the last start; its owner may have released it
  std::uint64_t use_ = 0;
  std::source_location started_;
};

namespace detail {

/// Base of the calls of `communicator::prepare()`: makes the same checks, and returns the operation instead of starting
/// it.
template <backend B>
class preparing_base : public call_base<B> {
 public:
  template <class Args>
  using started = prepared<B, Args>;
  static constexpr bool inline_path = false;
  static constexpr argument_error by_value =
      argument_error::values_cannot_be_prepared_so_pass_a_span_of_one_that_outlives_it;

  explicit preparing_base(communicator_core<B>* core) noexcept : call_base<B>(core) {}

 protected:
  template <class Args>
  prepared<B, Args> start(const shape& data, const call_options& how, const std::source_location&, Args args) {
    this->check_there(args);
    this->check_supported(args);
    const algorithm via = this->template resolved<Args>(how, data);
    if constexpr (requires { args.via; }) {
      args.via = via;
      args.via = this->core().backend().chosen(args);
    }
    return {this->core(), data, how, args};
  }
};

}  // namespace detail
}  // namespace tutti
