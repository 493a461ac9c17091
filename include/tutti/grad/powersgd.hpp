#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/low_rank.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/pass/comparison.hpp>
#include <tutti/grad/residuals.hpp>
#include <tutti/grad/working_copies.hpp>

namespace tutti::grad {

/// Options of powersgd_hook, the same on all ranks; defaults are torch's.
struct powersgd_options {
  std::size_t rank = 1;             ///< rank of the approximation
  std::uint64_t start_pass = 1000;  ///< earlier passes are sent uncompressed
  double least_ratio = 2;           ///< a matrix is compressed only if that saves this factor of elements
  std::uint64_t seed = 0;           ///< seed of the first guess
  bool error_feedback = true;       ///< adds the approximation's error in the next pass
  bool warm_start = true;           ///< starts from the last pass's approximation
};

/// PowerSGD (Vogels et al., 2019): a hook that sends a matrix of r x c as an approximation of low rank k, (r + c) k
/// elements. parameter_shape::rows says which gradients are matrices; all others, and tails, are sent uncompressed. Two
/// all_reduces per bucket, in float: the first in ready(), the second in finish(). All ranks get the same bits, on
/// machines of one kind. An infinity or NaN arrives as NaNs in its matrix, and is not kept. The error of one pass is
/// not bounded; it is added to later ones, in units of weight x gradient. Memory: a float per element, c k floats per
/// matrix, and (r + c) k per matrix of each bucket in flight. Computes 6 r c k products per matrix.
class powersgd_hook {
 public:
  powersgd_hook() = default;
  explicit powersgd_hook(powersgd_options options) : options_(options) {
    if (options.rank == 0 || !(options.least_ratio > 0))
      throw usage_error("powersgd_hook: rank and least_ratio must be above 0");
  }

  template <class Comm, number T>
  task<> operator()(Comm& world, bucket_view<T> b) {
    if (states_.size() <= b.index) states_.resize(b.index + 1);
    state& s = states_[b.index];
    elements_ += b.elements.size();
    return std::exchange(s.known, true) ? reduce(world, b, s) : agree(world, b, s);
  }

  /// Returns the elements that this rank has reduced so far, and the number of those it sent: their ratio is the
  /// compression.
  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  [[nodiscard]] std::uint64_t travelling() const noexcept { return travelling_; }

  /// Clears the remainders and the approximations, but not the number of passes.
  void reset() noexcept {
    passes_ = passes();
    states_.clear();
    copies_.clear();
    residuals_.reset();
  }
  /// Clears the remainders after a pass that all ranks skip: its gradients may be meaningless.
  void forget_pass() noexcept { residuals_.reset(); }

  /// Returns this rank's state for a checkpoint; load() restores it, for a reducer of the same plan: on all ranks or on
  /// none, before the first pass. The first pass throws error{mismatch} if ranks have states of different passes.
  [[nodiscard]] std::vector<std::byte> save() const {
    state_writer to;
    residuals_.save(to);
    to.put(passes());
    to.put(states_.size());
    for (const state& s : states_) {
      to.put(s.passes);
      to.put(std::span<const float>{s.warm});
    }
    return to.take();
  }
  void load(std::span<const std::byte> saved) {
    state_reader from{saved};
    residuals left;
    left.load(from);
    const std::uint64_t before = from.number();
    std::deque<state> states;
    for (std::uint64_t n = from.number(); n > 0; --n) {
      state& s = states.emplace_back();
      s.passes = from.number();
      s.warm = from.floats();
    }
    from.end();
    if (elements_ != 0) throw usage_error("powersgd_hook: load() before the first pass, or make a new reducer");
    residuals_ = std::move(left);
    passes_ = before;
    states_ = std::move(states);
  }

 private:
  // Returns the number of passes so far, which reset() keeps.
  [[nodiscard]] std::uint64_t passes() const noexcept {
    std::uint64_t most = passes_;
    for (const state& s : states_) most = (std::max)(most, s.passes);
    return most;
  }
  /// A matrix in a bucket, and the place of its approximation among those of the bucket.
  struct place {
    std::size_t offset, rows, columns, rank, p_at, q_at;

    [[nodiscard]] matrix_view in(std::span<float> bucket) const noexcept {
      return {bucket.data() + offset, rows, columns};
    }
    [[nodiscard]] matrix_view p(float* all) const noexcept { return {all + p_at, rank, rows}; }
    [[nodiscard]] matrix_view q(float* all) const noexcept { return {all + q_at, rank, columns}; }
  };
  struct state {
    std::uint64_t passes = 0;
    std::vector<float> warm;  // q of all matrices of the last approximation, orthonormal
    std::vector<place> list;
    detail::comparison ids;  // compares the states of all ranks
    std::size_t count = 0, p_count = 0, q_count = 0;
    bool known = false;

    /// Returns the offset of the q: all q lie behind all p, at the start of a line.
    [[nodiscard]] std::size_t p_room() const noexcept {
      return (p_count + line_elements<float> - 1) / line_elements<float> * line_elements<float>;
    }
  };

  template <class Comm, class T>
  task<> reduce(Comm& world, bucket_view<T> b, state& s) {
    if (s.count != b.gradients().size()) arrange(b, s);
    if (s.passes++ < options_.start_pass || s.list.empty()) {
      travelling_ += b.elements.size();
      return in_a_task(world.all_reduce(b.elements, sum, {}, b.where));
    }
    auto rest = sent_whole(b, s);
    op whole = world.all_reduce_coalesced(std::span<const std::span<T>>{rest}, sum, {}, b.where);
    auto memory = copies_.take(world, s.p_room() + s.q_count);
    const auto p = memory.span().first(s.p_count);
    const auto left = residuals_.of(b.index, b.gradients().size());
    if (!options_.error_feedback) std::fill(left.begin(), left.end(), 0.0f);
    for (const place& m : s.list) {
      const auto g = b.gradients().subspan(m.offset, m.rows * m.columns);
      for (std::size_t i = 0; i < g.size(); ++i) left[m.offset + i] += b.whole(g[i]);
      guess(b.index, s, m);
      project(m.in(left), m.q(s.warm.data()), m.p(p.data()));
    }
    op first = world.all_reduce(p, sum, {}, b.where);
    return approximate(world, std::move(rest), std::move(memory), std::move(first), std::move(whole), b, s, left);
  }
  // Decides which matrices are approximated, and places their approximations.
  template <class T>
  void arrange(const bucket_view<T>& b, state& s) {
    s.count = b.gradients().size();
    s.list.clear();
    s.p_count = s.q_count = 0;
    for (const bucket_slot& slot : b.slots) {
      const std::size_t rows = slot.rows, columns = slot.count / slot.rows;
      const std::size_t rank = (std::min)({options_.rank, rows, columns});
      if (!pays(slot)) continue;
      s.list.push_back({slot.offset, rows, columns, rank, s.p_count, s.q_count});
      s.p_count += rank * rows;
      s.q_count += rank * columns;
    }
    if (s.warm.size() != s.q_count) s.warm.assign(s.q_count, 0.0f);
  }
  // Compares the ranks' states before the first pass of a bucket: ranks with other states would call other collectives,
  // or start from another guess. Waits in the task, as ranks may come to buckets in any order.
  template <class Comm, class T>
  task<> agree(Comm& world, bucket_view<T> b, state& s) {
    s.passes = (std::max)(s.passes, passes_);
    std::uint64_t id = s.passes;
    for (const float x : s.warm) id = tutti::detail::splitmix(id ^ std::bit_cast<std::uint32_t>(x));
    return compared(world, b, s, s.ids.begin(world, id, {}, b.where));
  }
  template <class Comm, class T>
  task<> compared(Comm& world, bucket_view<T> b, state& s, op ids) {
    op sent = std::move(ids);
    co_await std::move(sent);
    const int who = s.ids.odd().rank;
    if (who < 0) {
      co_await reduce(world, b, s);
      co_return;
    }
    try {
      co_await world.barrier({}, b.where);  // until all have compared: the error below ends the communicator
    } catch (const error&) {
    }
    detail::throw_error(world, "powersgd_hook", errc::mismatch, who,
                        "rank " + std::to_string(world.world_rank(who)) + " has another state than rank " +
                            std::to_string(world.world_rank(0)) + "; all ranks load() that of one pass, or none does",
                        b.where);
  }
  [[nodiscard]] bool pays(const bucket_slot& slot) const noexcept {
    const std::size_t rows = slot.rows, columns = slot.count / slot.rows;
    const auto travels = static_cast<double>((rows + columns) * (std::min)({options_.rank, rows, columns}));
    return slot.count > 0 && travels * options_.least_ratio < static_cast<double>(slot.count);
  }

  template <class T>
  std::vector<std::span<T>> sent_whole(const bucket_view<T>& b, const state& s) {
    std::vector<std::span<T>> rest{b.tail()};
    for (const bucket_slot& slot : b.slots)
      if (!pays(slot)) rest.push_back(b.elements.subspan(slot.offset, slot.count));
    for (const auto& r : rest) travelling_ += r.size();
    travelling_ += s.p_count + s.q_count;
    return rest;
  }

  // Gives rows of zeros a pseudorandom direction, the same on all ranks; all rows if nothing is kept from pass to pass.
  void guess(std::size_t bucket, state& s, const place& m) const noexcept {
    const auto q = m.q(s.warm.data());
    for (std::size_t k = 0; k < q.rows; ++k) {
      const auto row = q.row(k);
      const bool known = std::any_of(row.begin(), row.end(), [](float x) { return x != 0; });
      if (known && options_.warm_start) continue;
      std::uint64_t seed = options_.seed + tutti::detail::splitmix_step * (1 + bucket + 1000003 * (m.offset + k));
      if (!options_.warm_start) seed += s.passes * 0xd1342543de82ef95u;
      for (float& x : row) {
        const std::uint64_t bits = tutti::detail::splitmix(seed++ + tutti::detail::splitmix_step);
        x = static_cast<float>(static_cast<std::int64_t>(bits) >> 40) * 0x1p-23f;
      }
    }
  }
  // `rest` belongs to `whole` and `memory` to `first`. They outlive these operations, also in a task that is dropped
  // before it starts: parameters are destroyed in reverse order.
  template <class Comm, class T>
  task<> approximate(Comm& world, std::vector<std::span<T>> rest, working_copies<float>::copy memory, op first,
                     op whole, bucket_view<T> b, state& s, std::span<float> left) {
    const auto listed = std::move(rest);
    const auto mine_of = std::move(memory);
    const auto all_p = mine_of.span().first(s.p_count), all_q = mine_of.span().last(s.q_count);
    op sums = std::move(first), others = std::move(whole);
    co_await std::move(sums);
    for (const place& m : s.list) {
      const auto p = m.p(all_p.data()), q = m.q(all_q.data());
      orthonormalize(p);
      const auto mine = m.in(left);
      project_back(mine, p, q);
      row_.resize((std::max)(row_.size(), m.columns));
      const std::span<float> row{row_.data(), m.columns};
      for (std::size_t i = 0; i < m.rows; ++i) {
        expand_row(p, q, i, row);
        for (std::size_t j = 0; j < m.columns; ++j) mine.row(i)[j] -= row[j];
      }
    }
    residuals::drop_non_finite(left);
    co_await world.all_reduce(all_q, sum, {}, b.where);
    for (const place& m : s.list) {
      const std::span<float> row{row_.data(), m.columns};
      for (std::size_t i = 0; i < m.rows; ++i) {
        expand_row(m.p(all_p.data()), m.q(all_q.data()), i, row);
        const auto to = b.gradients().subspan(m.offset + i * m.columns, m.columns);
        for (std::size_t j = 0; j < m.columns; ++j) to[j] = b.scaled(row[j]);
      }
      orthonormalize(m.q(all_q.data()));
    }
    std::copy(all_q.begin(), all_q.end(), s.warm.begin());
    residuals::drop_non_finite(s.warm);
    co_await std::move(others);
  }

  powersgd_options options_;
  residuals residuals_;
  std::deque<state> states_;  // by bucket
  std::vector<float> row_;
  working_copies<float> copies_;  // for all p and q of a bucket
  std::uint64_t passes_ = 0;      // before the last reset
  std::uint64_t elements_ = 0, travelling_ = 0;
};

}  // namespace tutti::grad
