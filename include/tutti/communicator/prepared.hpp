#pragma once
#include <source_location>
#include <span>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/backend/issuer.hpp>
#include <tutti/communicator/base.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/options.hpp>

namespace tutti {

/// An operation that was checked, and its algorithm chosen, once, to be started many times: `auto p =
/// world.prepare_all_reduce(gradients, mean)`, then `p.start().wait()` in every step. A start is a collective call like
/// any other, in the same order on all ranks; the ranks need not have prepared it alike. The buffers must outlive it
/// and belong to each operation from its start to its end. One at a time: start again when the handle has ended. Must
/// not outlive the communicator; moving that is fine. Thread safety is the communicator's.
template <backend B, class Args>
class prepared {
 public:
  [[nodiscard]] op start(std::source_location where = std::source_location::current()) {
    return op{issuer_->issue(data_.count, data_.type, timeout_, where, [this](op_state&) { return args_; })};
  }

 private:
  template <backend>
  friend class detail::communicator_base;
  prepared(issuer<B>& by, const detail::shape& data, duration timeout, const Args& args)
      : issuer_(&by), data_(data), timeout_(timeout), args_(args) {}

  issuer<B>* issuer_;
  detail::shape data_;
  duration timeout_;
  Args args_;
};

namespace detail {

/// The calls of a communicator that prepare others. Arguments are those of the call without `prepare_`, and so are the
/// errors.
template <class Base>
class preparing_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;

  template <writable_elements R, reduction_for<std::ranges::range_value_t<R>> Op = sum_op>
    requires supports<backend_type, all_reduce_args>
  [[nodiscard]] prepared<backend_type, all_reduce_args> prepare_all_reduce(R&& inout, Op with = {}, issue how = {}) {
    using T = std::ranges::range_value_t<R>;
    const std::span<T> data = span_of(inout);
    return this->prepare(shape_of<T>(data.size()), how,
                         all_reduce_args{erase_type(std::span<const T>{data}), erase_type(data), erase_type<T>(with)});
  }

  template <elements In, writable_elements Out, reduction_for<std::ranges::range_value_t<Out>> Op = sum_op>
    requires supports<backend_type, reduce_scatter_args> && alike<In, Out>
  [[nodiscard]] prepared<backend_type, reduce_scatter_args> prepare_reduce_scatter(In&& in, Out&& out, Op with = {},
                                                                                   issue how = {}) {
    using T = std::ranges::range_value_t<Out>;
    return this->prepare(shape_of<T>(std::ranges::size(in)), how,
                         this->checked_reduce_scatter(read_only(in), span_of(out), with));
  }

  template <elements In, writable_elements Out>
    requires supports<backend_type, all_gather_args> && alike<In, Out>
  [[nodiscard]] prepared<backend_type, all_gather_args> prepare_all_gather(In&& in, Out&& out, issue how = {}) {
    using T = std::ranges::range_value_t<Out>;
    return this->prepare(shape_of<T>(std::ranges::size(out)), how,
                         this->checked_all_gather(read_only(in), span_of(out)));
  }

  template <writable_elements R>
    requires supports<backend_type, broadcast_args>
  [[nodiscard]] prepared<backend_type, broadcast_args> prepare_broadcast(R&& data, int root, issue how = {}) {
    using T = std::ranges::range_value_t<R>;
    this->check_rank("broadcast", "root", root);
    const std::span<T> s = span_of(data);
    return this->prepare(shape_of<T>(s.size()), how, broadcast_args{erase_type(s), root});
  }
};

}  // namespace detail
}  // namespace tutti
