#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/tutti.hpp>

#include "blocks.hpp"
#include "collective.hpp"
#include "options.hpp"

namespace bench {

/// Returns a small integer; sums and products of these over any number of ranks are exact in every type and order.
template <class T>
T operand(int rank, std::size_t i, const std::string& op) {
  if (op == "prod") return static_cast<T>(static_cast<float>(i % 5 == 0 && rank == 0 ? 2 : 1));
  return static_cast<T>(static_cast<float>((i + static_cast<std::size_t>(rank)) % 3));
}

template <class T>
T expected(int world_size, std::size_t i, const std::string& op) {
  float value = op == "prod" ? 1.0F : op == "min" ? 2.0F : 0.0F;
  for (int r = 0; r < world_size; ++r) {
    const auto x = static_cast<float>(operand<T>(r, i, op));
    if (op == "prod")
      value *= x;
    else if (op == "min")
      value = std::min(value, x);
    else if (op == "max")
      value = std::max(value, x);
    else
      value += x;
  }
  if (op == "avg") {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<int>(value) / world_size);
    else
      return static_cast<T>(value / static_cast<float>(world_size));
  }
  return static_cast<T>(value);
}

/// The chosen collective on elements of T: fills its input, issues it and checks its result, in the same way on all
/// backends.
template <class T>
class exercise {
 public:
  /// Prepares the collective of the options. `mean_error` is the relative error that a mean may have.
  exercise(const options& o, int rank, int size, double mean_error)
      : what_(collective_of(o.collective)), o_(o), rank_(rank), size_(size), mean_error_(mean_error) {}

  /// Returns the number of elements of either buffer for the largest size.
  [[nodiscard]] std::size_t most() const { return std::max<std::size_t>(o_.max_bytes / sizeof(T), ranks()); }

  /// Issues the collective once, on the first `in.size()` elements of both buffers, or in place in one of them. Passes
  /// the handles to `done`; all must have ended before a call with another size. Calls with one size use the same
  /// buffers.
  template <class Communicator, class Span, class Done>
  void begin(Communicator& world, const tutti::call_options& how, Span in, Span out, placements where, Done done) {
    cut(in.size());
    const bool in_place = where == placements::in_place;
    const auto own = [&](Span s) { return s.subspan(mine_, count_); };
    const Span to = in_place ? in : out;
    const Span block_in = in_place ? own(to) : in.first(count_);
    const Span block_out = in_place ? own(in) : out.first(count_);
    if (what_.name == "sendrecv") {
      done(world.send(in, next(), 0, how));
      done(world.recv(out, previous(), 0, how));
    } else if (what_.name == "barrier") {
      done(world.barrier(how));
    } else if (what_.name == "broadcast") {
      done(world.broadcast(in, o_.root, how));
    } else if (what_.name == "all_gather") {
      done(world.all_gather(block_in, to, how));
    } else if (what_.name == "gather") {
      done(world.gather(block_in, to, o_.root, how));
    } else if (what_.name == "scatter") {
      done(world.scatter(in, block_out, o_.root, how));
    } else if (what_.name == "all_to_all") {
      done(world.all_to_all(in, out, how));
    } else if (what_.uneven() && !what_.reduces) {
      begin_uneven(world, how, in, block_in, to, block_out, done);
    } else {
      with_reduction([&](auto op) {
        if (what_.name == "reduce")
          done(world.reduce(in, to, o_.root, op, how));
        else if (what_.name == "reduce_scatter")
          done(world.reduce_scatter(in, block_out, op, how));
        else if (what_.name == "all_reduce")
          done(in_place ? world.all_reduce(in, op, how) : world.all_reduce(in, out, op, how));
        else
          begin_other_reduction(world, how, in, to, block_out, op, done);
      });
    }
  }

  /// Fills `in` with the operand of this rank.
  void fill(std::span<T> in, placements where) {
    cut(in.size());
    const bool own_block = where == placements::in_place && what_.kind().ends_with("gather");
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = operand<T>(rank_, own_block ? i - std::min(i, mine_) : i, o_.op);
  }

  /// Returns the number of wrong elements in the buffer that holds the result.
  [[nodiscard]] std::uint64_t wrong(std::span<const T> result, placements where) {
    cut(result.size());
    std::uint64_t wrong = 0;
    const auto is = [&](std::size_t first, std::size_t count, auto wanted) {
      for (std::size_t i = 0; i < count; ++i) {
        const double want = as_double(wanted(i));
        const double off = o_.op == "avg" ? std::abs(want) * mean_error_ : 0;
        wrong += !(std::abs(as_double(result[first + i]) - want) <= off);
      }
    };
    const std::size_t all = result.size();
    const std::size_t at = where == placements::in_place ? mine_ : 0;  // offset of the block that this rank gets
    const auto from = [&](std::size_t rank, std::size_t first) {
      return [this, rank, first](std::size_t i) { return operand<T>(static_cast<int>(rank), first + i, o_.op); };
    };
    const auto sum_of = [&](int ranks, std::size_t first) {
      return [this, ranks, first](std::size_t i) { return expected<T>(ranks, first + i, o_.op); };
    };
    const bool here = !what_.rooted || rank_ == o_.root;  // only the root has the result of a gather or a reduce
    const auto kind = what_.kind();
    if (kind == "broadcast")
      is(0, all, from(static_cast<std::size_t>(o_.root), 0));
    else if (kind == "sendrecv")
      is(0, all, from(static_cast<std::size_t>(previous()), 0));
    else if (kind == "scatter")
      is(at, count_, from(static_cast<std::size_t>(o_.root), mine_));
    else if (kind == "all_to_all")
      for (std::size_t r = 0; r < ranks(); ++r)
        is(blocks_.begin(me(), r), blocks_.count(me() + r), from(r, blocks_.begin(r, me())));
    else if (here && kind.ends_with("gather"))
      for (std::size_t r = 0; r < ranks(); ++r) is(blocks_.begin(r), blocks_.count(r), from(r, 0));
    else if (kind == "reduce_scatter")
      is(at, count_, sum_of(size_, mine_));
    else if (kind == "scan" || (kind == "exclusive_scan" && rank_ != 0))  // rank 0 keeps what it had
      is(0, all, sum_of(rank_ + (kind == "scan" ? 1 : 0), 0));
    else if (here && what_.reduces && kind != "exclusive_scan")
      is(0, all, sum_of(size_, 0));
    return wrong;
  }

 private:
  static constexpr std::size_t parts = 16;  ///< buffers of an all_reduce_coalesced

  // Does nothing for the same size: operations in flight keep pointers to the counts.
  void cut(std::size_t all) {
    if (!blocks_.cut(all, ranks(), what_.uneven() ? blocks::lengths::uneven : blocks::lengths::equal)) return;
    mine_ = blocks_.begin(me());
    count_ = blocks_.count(me());
    list_.clear();
    turned_.clear();
    for (std::size_t r = 0; r < ranks(); ++r) turned_.push_back(blocks_.count(me() + r));
  }
  [[noreturn]] void refuse() const {
    throw std::runtime_error("tutti-bench does not time " + std::string(what_.name) + " on this backend");
  }

  /// Issues a v-variant that does not reduce.
  template <class Communicator, class Span, class Done>
  void begin_uneven(Communicator& world, const tutti::call_options& how, Span in, Span block_in, Span to,
                    Span block_out, Done done) {
    const auto& counts = blocks_.counts();
    if constexpr (requires { world.all_to_all_v(in, counts, to, counts, how); }) {
      if (what_.name == "all_gather_v") return done(world.all_gather_v(block_in, to, counts, how));
      if (what_.name == "gather_v") return done(world.gather_v(block_in, to, counts, o_.root, how));
      if (what_.name == "scatter_v") return done(world.scatter_v(in, block_out, counts, o_.root, how));
      return done(world.all_to_all_v(in, turned_, to, turned_, how));
    }
    refuse();
  }
  template <class Communicator, class Span, class Op, class Done>
  void begin_other_reduction(Communicator& world, const tutti::call_options& how, Span in, Span to, Span block_out,
                             Op op, Done done) {
    if constexpr (requires { world.reduce_scatter_v(in, block_out, blocks_.counts(), op, how); })
      if (what_.name == "reduce_scatter_v")
        return done(world.reduce_scatter_v(in, block_out, blocks_.counts(), op, how));
    if constexpr (requires { world.scan(in, to, op, how); }) {
      if (what_.name == "scan") return done(world.scan(in, to, op, how));
      if (what_.name == "exclusive_scan") return done(world.exclusive_scan(in, to, op, how));
    }
    if constexpr (std::same_as<Span, std::span<T>>)
      if (what_.name == "all_reduce_coalesced") return done(world.all_reduce_coalesced(list_of(in), op, how));
    refuse();
  }
  const std::vector<std::span<T>>& list_of(std::span<T> in) {
    for (std::size_t i = list_.size(); i < parts; ++i) {
      const std::size_t first = in.size() * i / parts, end = in.size() * (i + 1) / parts;
      list_.push_back(in.subspan(first, end - first));
    }
    return list_;
  }

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank_); }
  /// Return the rank to which sendrecv sends, and that from which it receives.
  [[nodiscard]] int next() const { return (rank_ + 1) % size_; }
  [[nodiscard]] int previous() const { return (rank_ + size_ - 1) % size_; }

  template <class F>
  void with_reduction(F f) const {
    if (o_.op == "prod") return f(tutti::prod);
    if (o_.op == "max") return f(tutti::max);
    if (o_.op == "min") return f(tutti::min);
    if (o_.op == "avg") return f(tutti::mean);
    f(tutti::sum);
  }
  static double as_double(T x) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(x);
    else
      return static_cast<double>(static_cast<float>(x));
  }

  const collective& what_;
  const options& o_;
  int rank_, size_;
  double mean_error_;
  blocks blocks_;
  std::size_t mine_ = 0, count_ = 0;  // offset and length of this rank's block
  std::vector<std::size_t> turned_;
  std::vector<std::span<T>> list_;
};

/// Calls f with a null pointer to the type with this name.
template <class F>
void with_type(const std::string& name, F f) {
  const auto of = [&]<class T>(const T* none) { f(none); };
  if (name == "int8") return of(static_cast<const std::int8_t*>(nullptr));
  if (name == "uint8") return of(static_cast<const std::uint8_t*>(nullptr));
  if (name == "int32") return of(static_cast<const std::int32_t*>(nullptr));
  if (name == "uint32") return of(static_cast<const std::uint32_t*>(nullptr));
  if (name == "int64") return of(static_cast<const std::int64_t*>(nullptr));
  if (name == "uint64") return of(static_cast<const std::uint64_t*>(nullptr));
  if (name == "half") return of(static_cast<const tutti::float16*>(nullptr));
  if (name == "bfloat16") return of(static_cast<const tutti::bfloat16*>(nullptr));
  if (name == "double") return of(static_cast<const double*>(nullptr));
  if (name == "f8e4m3") return of(static_cast<const tutti::float8_e4m3*>(nullptr));
  if (name == "f8e5m2") return of(static_cast<const tutti::float8_e5m2*>(nullptr));
  of(static_cast<const float*>(nullptr));
}

}  // namespace bench
