#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/weight.hpp>
#include <tutti/train/master.hpp>
#include <tutti/train/shard_state.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <tutti/train/shares.hpp>
#include <tutti/train/update_rule.hpp>

namespace tutti::train {

/// An optimizer whose memory is divided among the ranks (ZeRO; Rajbhandari et al., 2020): each updates its part of the
/// parameters and tells the others. Equal to the undivided step, bit for bit where the sums of gradients are.
///
/// Stage 1: `co_await step_reduced(gradients)` with gradients that are averaged already, as by a grad::reducer. Stage
/// 2: `begin(weight)`, `reduce(gradients, first)` for every stretch of the parameters as the backward pass completes
/// it, and `co_await step()`: no rank ever holds all gradients. Collective: made alike by all ranks, with equal
/// parameters; all calls in the same order. One thread at a time; `world` and the parameters must outlive it. Memory:
/// rule slots x N / ranks elements; in stage 2 another N / ranks. Costs of a step: N elements reduced and scattered
/// (stage 2), N gathered: the bytes of one all_reduce. Any number of ranks and parameters. Gradients of parameters of
/// 16 bits are float, and so is a copy of this rank's part, which steps: of what the parameters are in the first step.
template <class Comm, parameter_number T, update_rule<master_t<T>> Rule>
class sharded_optimizer {
  using wide = master_t<T>;

 public:
  /// `parameters` are all of them, one behind the other.
  sharded_optimizer(Comm& world, std::span<T> parameters, Rule rule)
      : world_(&world),
        parameters_(parameters),
        cut_(parameters.size(), world.size(), world.rank()),
        mine_(cut_.size(), rule) {}
  sharded_optimizer(const sharded_optimizer&) = delete;
  sharded_optimizer& operator=(const sharded_optimizer&) = delete;
  /// In the midst of a pass it aborts the communicator: the others would wait. Between average() and step() it does so
  /// where an exception drops it; else all ranks leave the pass without a step, as after an overflow.
  ~sharded_optimizer() {
    if (mine_.broken_off()) world_->abort();
  }

  /// Stage 1: a step by the gradients of all parameters, equal on all ranks, of which it reads its part.
  task<> step_reduced(std::span<const master_t<T>> gradients) {
    check_count(gradients.size());
    mine_.step_by(stepped(), gradients.subspan(first(), size()));
    co_await tell();
  }

  /// The same by gradients that lie in pieces anywhere, in the order of the parameters, as those of a grad::reducer of
  /// one type do: `step_reduced(reducer.gradients())`. The list of them belongs to it until the task has ended.
  task<> step_reduced(std::span<const std::span<master_t<T>>> gradients) {
    std::size_t at = 0;
    for (const auto& g : gradients) at += g.size();
    check_count(at);
    mine_.count_step();
    at = 0;
    for (const auto& g : gradients) {
      const std::size_t begin = std::clamp(first(), at, at + g.size());
      const std::size_t count = std::clamp(first() + size(), at, at + g.size()) - begin;
      if (count > 0)
        mine_.apply(begin - first(), stepped().subspan(begin - first(), count), g.subspan(begin - at, count));
      at += g.size();
    }
    co_await tell();
  }

  /// Stage 2: begins a pass, as grad::reducer::begin(): this rank's gradients count for `weight`.
  void begin(double weight = 1, grad::contribution what = grad::contribution::mean) {
    mine_.begin(weight, what);
    reduced_ = used_ = 0;
  }
  /// Starts to add up the gradients of parameters [first, first + count) over the ranks; each keeps its part. Every
  /// parameter once per pass, in the same stretches and order on all ranks. The buffer is multiplied by the weight, and
  /// free again when the operation has ended; keep several in flight, and end all before step().
  op reduce(std::span<master_t<T>> gradients, std::size_t first = 0,
            std::source_location where = std::source_location::current()) {
    if (first > parameters_.size() || gradients.size() > parameters_.size() - first)
      throw usage_error("sharded_optimizer: reduce() of parameters " + std::to_string(first) + " to " +
                        std::to_string(first + gradients.size()) + " of " + std::to_string(parameters_.size()));
    if (!mine_.begun()) throw usage_error("sharded_optimizer: reduce() before begin()");
    grad::multiply(gradients, mine_.scale());
    const auto counts = cut_.counts();
    if (used_ == slices_.size()) slices_.emplace_back(counts.size());
    auto& slice = slices_[used_++];
    const std::size_t end = first + gradients.size();
    std::size_t at = 0;
    for (std::size_t r = 0; r < slice.size(); at += counts[r++])
      slice[r] = std::max(std::min(end, at + counts[r]), std::max(first, at)) - std::max(first, at);
    const std::size_t begin = std::clamp(first, cut_.first(), cut_.first() + size()) - cut_.first();
    reduced_ += gradients.size();
    return world_->reduce_scatter_v(gradients,
                                    mine_.gradients().subspan(begin, slice[static_cast<std::size_t>(world_->rank())]),
                                    slice, sum, {}, where);
  }
  /// This rank cannot use its gradients: an infinity, or no memory to compute them. No rank steps then, and step() and
  /// average() say so everywhere. Between begin() and average(); sends nothing, and the rank goes on with the pass: its
  /// other calls are as ever, on any values.
  void skip(grad::step why) { mine_.skip(why, "sharded_optimizer"); }
  /// The sum of all ranks' weights in the last pass that was averaged; 0 before the first, and when all ranks have run
  /// out of samples.
  [[nodiscard]] double total_weight() const noexcept { return mine_.total_weight(); }
  /// Makes the sums the weighted mean, by an all_reduce of 16 bytes; step() does it where this was not called. Where
  /// all weights are 0, the mean is 0. The result is equal on all ranks: whether one of them skips, and the sums are
  /// not divided. Errors: usage_error if not every parameter was reduced; nothing was sent then.
  task<grad::step> average() {
    if (!mine_.begun() || reduced_ != parameters_.size())
      throw usage_error("sharded_optimizer: reduce() was called for " + std::to_string(reduced_) + " parameters of " +
                        std::to_string(parameters_.size()));
    co_return co_await mine_.average(*world_);
  }
  /// This rank's part of the mean, between average() and step(): to measure it, say, for a loss_scaler or clipping.
  [[nodiscard]] std::span<master_t<T>> gradient_shard() noexcept { return mine_.gradients(); }
  /// A step by the mean times `factor`, that of a loss_scaler or of clipping; none, whose bytes are saved, where a rank
  /// skips or all weights are 0. Ends the pass. The result is that of average().
  task<grad::step> step(double factor = 1) {
    if (!mine_.averaged()) co_await average();
    reduced_ = 0;
    if (mine_.step(stepped(), factor)) co_await tell();
    co_return mine_.verdict();
  }

  /// The parameters that this rank updates: how many, and the first of them.
  [[nodiscard]] std::size_t size() const noexcept { return cut_.size(); }
  [[nodiscard]] std::size_t first() const noexcept { return cut_.first(); }
  /// Of what the rule remembers here, and of the copy in float.
  [[nodiscard]] std::size_t bytes() const noexcept { return mine_.bytes() + master_.size() * sizeof(wide); }

  /// The rule, to change its rate.
  [[nodiscard]] Rule& rule() noexcept { return mine_.rule(); }
  /// Steps so far; to be saved with what the rule remembers, as shards for save_sharded() and load_sharded().
  [[nodiscard]] std::uint64_t steps() const noexcept { return mine_.steps(); }
  void resume(std::uint64_t steps) noexcept { mine_.resume(steps); }
  [[nodiscard]] std::vector<tensor_shard> shards(const std::string& prefix = "optimizer.") {
    std::vector<tensor_shard> all;
    if constexpr (has_master<T>) all.push_back(shard(prefix + "parameters", stepped(), first(), parameters_.size()));
    for (std::size_t s = 0; s < Rule::slots; ++s)
      all.push_back(shard(prefix + std::to_string(s), mine_.slots()[s], first(), parameters_.size()));
    return all;
  }

 private:
  void check_count(std::size_t gradients) const {
    if (gradients != parameters_.size())
      throw usage_error("sharded_optimizer: " + std::to_string(gradients) + " gradients for " +
                        std::to_string(parameters_.size()) + " parameters");
  }
  /// This rank's parameters as steps change them.
  std::span<wide> stepped() {
    const auto mine = parameters_.subspan(first(), size());
    if constexpr (has_master<T>) {
      if (master_.size() == mine.size()) return master_;
      master_.resize(mine.size());
      widen<T>(mine, master_);
      return master_;
    } else {
      return mine;
    }
  }
  task<> tell() {
    const auto mine = parameters_.subspan(first(), size());
    if constexpr (has_master<T>) narrow<T>(master_, mine);
    co_await world_->all_gather_v(mine, parameters_, cut_.counts());
  }

  Comm* world_;
  std::span<T> parameters_;
  shares cut_;
  std::vector<wide> master_;  // where T has 16 bits, from the first step on
  shard_state<wide, Rule> mine_;
  std::vector<std::vector<std::size_t>> slices_;  // how the stretches of a pass are divided; belong to operations
  std::size_t used_ = 0, reduced_ = 0;
};

}  // namespace tutti::train
