#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/tutti.hpp>

#include "collective.hpp"
#include "options.hpp"

namespace bench {

/// Small integers whose sums and products over any number of ranks are exact in every type, in any order.
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

/// The collective that was asked for, on elements of T: what goes in, how it begins, and what must come out. The same
/// for all backends.
template <class T>
class exercise {
 public:
  /// `mean_error`: by which part of itself a mean may be off.
  exercise(const options& o, int rank, int size, double mean_error)
      : what_(collective_of(o.collective)), o_(o), rank_(rank), size_(size), mean_error_(mean_error) {}

  /// Elements of either buffer for the largest size.
  [[nodiscard]] std::size_t most() const { return std::max<std::size_t>(o_.max_bytes / sizeof(T), ranks()); }

  /// Begins it once, on the first `in.size()` elements of both buffers; in place it takes one of them. `done` gets the
  /// handles.
  template <class Communicator, class Span, class Done>
  void begin(Communicator& world, const tutti::issue& how, Span in, Span out, placements where, Done done) const {
    const bool in_place = where == placements::in_place;
    const std::size_t each = in.size() / ranks();
    const auto own = [&](Span s) { return s.subspan(me() * each, each); };
    const Span to = in_place ? in : out;
    if (o_.collective == "sendrecv") {
      done(world.send(in, next(), 0, how));
      done(world.recv(out, previous(), 0, how));
    } else if (o_.collective == "barrier") {
      done(world.barrier(how));
    } else if (o_.collective == "broadcast") {
      done(world.broadcast(in, o_.root, how));
    } else if (o_.collective == "all_gather") {
      done(world.all_gather(in_place ? own(to) : in.first(each), to, how));
    } else if (o_.collective == "gather") {
      done(world.gather(in_place ? own(to) : in.first(each), to, o_.root, how));
    } else if (o_.collective == "scatter") {
      done(world.scatter(in, in_place ? own(in) : out.first(each), o_.root, how));
    } else if (o_.collective == "all_to_all") {
      done(world.all_to_all(in, out, how));
    } else {
      with_reduction([&](auto op) {
        if (o_.collective == "reduce")
          done(world.reduce(in, to, o_.root, op, how));
        else if (o_.collective == "reduce_scatter")
          done(world.reduce_scatter(in, in_place ? own(in) : out.first(each), op, how));
        else
          done(in_place ? world.all_reduce(in, op, how) : world.all_reduce(in, out, op, how));
      });
    }
  }

  /// What `in` holds before it.
  void fill(std::span<T> in, placements where) const {
    const std::size_t each = in.size() / ranks();
    const bool own_block =
        where == placements::in_place && (o_.collective == "all_gather" || o_.collective == "gather");
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = operand<T>(rank_, own_block ? i - std::min(i, me() * each) : i, o_.op);
  }

  /// How many elements of the buffer that holds the result are wrong after it.
  [[nodiscard]] std::uint64_t wrong(std::span<const T> result, placements where) const {
    std::uint64_t wrong = 0;
    const auto is = [&](std::size_t first, std::size_t count, auto wanted) {
      for (std::size_t i = 0; i < count; ++i) {
        const double want = as_double(wanted(i));
        const double off = o_.op == "avg" ? std::abs(want) * mean_error_ : 0;
        wrong += !(std::abs(as_double(result[first + i]) - want) <= off);
      }
    };
    const std::size_t all = result.size(), each = all / ranks(), mine = me() * each;
    const std::size_t at = where == placements::in_place ? mine : 0;  // of the block that each rank gets
    const auto each_from = [&](auto wanted) {
      for (std::size_t r = 0; r < ranks(); ++r) is(r * each, each, wanted(static_cast<int>(r)));
    };
    const auto from = [&](int rank, std::size_t first) {
      return [this, rank, first](std::size_t i) { return operand<T>(rank, first + i, o_.op); };
    };
    const bool here = !what_.rooted || rank_ == o_.root;  // where the result of a gather or a reduce is
    if (o_.collective == "broadcast")
      is(0, all, from(o_.root, 0));
    else if (o_.collective == "sendrecv")
      is(0, all, from(previous(), 0));
    else if (o_.collective == "scatter")
      is(at, each, from(o_.root, mine));
    else if (o_.collective == "all_to_all")
      each_from([&](int r) { return from(r, mine); });
    else if (here && o_.collective.ends_with("gather"))
      each_from([&](int r) { return from(r, 0); });
    else if (o_.collective == "reduce_scatter")
      is(at, each, [&](std::size_t i) { return expected<T>(size_, mine + i, o_.op); });
    else if (here && what_.reduces)
      is(0, all, [&](std::size_t i) { return expected<T>(size_, i, o_.op); });
    return wrong;
  }

 private:
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank_); }
  /// To whom sendrecv sends, and from whom it receives.
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
};

/// Calls f with a null pointer to the type of the name.
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
