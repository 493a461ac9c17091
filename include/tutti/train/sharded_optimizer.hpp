#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/weight.hpp>
#include <tutti/train/coverage.hpp>
#include <tutti/train/make_shards.hpp>
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
  struct parts;

 public:
  /// `parameters` are all of them, one behind the other. Blocks. Errors: error{mismatch} on all ranks where numbers of
  /// parameters or rules differ; error{out_of_resources} where another rank has no memory.
  sharded_optimizer(Comm& world, std::span<T> parameters, Rule rule,
                    std::source_location where = std::source_location::current())
      : sharded_optimizer(world, parameters, make(world, parameters.size(), rule, where)) {}
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
    const auto own = stepped();
    mine_.count_step();
    at = 0;
    for (const auto& g : gradients) {
      const std::size_t begin = std::clamp(first(), at, at + g.size());
      const std::size_t count = std::clamp(first() + size(), at, at + g.size()) - begin;
      if (count > 0) mine_.apply(begin - first(), own.subspan(begin - first(), count), g.subspan(begin - at, count));
      at += g.size();
    }
    co_await tell();
  }

  /// Stage 2: begins a pass, as grad::reducer::begin(): this rank's gradients count for `weight`, which travels in an
  /// all_reduce of 56 bytes. Errors: usage_error
  /// for a bad weight, and in a pass that was left before average(): that also aborts the communicator, as the other
  /// ranks are still in it.
  void begin(double weight = 1, grad::contribution what = grad::contribution::mean) {
    mine_.begin(*world_, "sharded_optimizer", weight, what);
    reduced_.clear();
    used_ = 0;
  }
  /// Starts to add up the gradients of parameters [first, first + count) over the ranks; each keeps its part. Every
  /// parameter once per pass, in the same stretches and order on all ranks. The first one waits until all ranks have
  /// begun: the buffer is multiplied by the weight, but where those of all ranks are equal or 0. It is free again when
  /// the operation has ended; keep several in flight, and end all before average() and step(). Errors:
  /// usage_error outside a pass, after average(), and for parameters that do not exist or were reduced already.
  op reduce(std::span<master_t<T>> gradients, std::size_t first = 0,
            std::source_location where = std::source_location::current()) {
    if (first > parameters_.size() || gradients.size() > parameters_.size() - first)
      throw usage_error("sharded_optimizer: reduce() of parameters " + std::to_string(first) + " to " +
                        std::to_string(first + gradients.size()) + " of " + std::to_string(parameters_.size()));
    if (!mine_.begun() || mine_.averaged())
      throw usage_error("sharded_optimizer: reduce() belongs between begin() and average()");
    const std::size_t end = first + gradients.size();
    if (!reduced_.add(first, end))
      throw usage_error("sharded_optimizer: reduce() of parameters " + std::to_string(first) + " to " +
                        std::to_string(end) + ", some of which were reduced in this pass already");
    grad::multiply(gradients, mine_.scale());
    const auto counts = cut_.counts();
    if (used_ == slices_.size()) slices_.emplace_back(counts.size());
    auto& slice = slices_[used_++];
    std::size_t at = 0;
    for (std::size_t r = 0; r < slice.size(); at += counts[r++])
      slice[r] = (std::max)((std::min)(end, at + counts[r]), (std::max)(first, at)) - (std::max)(first, at);
    const std::size_t begin = std::clamp(first, cut_.first(), cut_.first() + size()) - cut_.first();
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
  /// Makes the sums the weighted mean, by an all_reduce of 24 bytes; step() does it where this was not called. Where
  /// all weights are 0, the mean is 0. The result is equal on all ranks: whether one of them skips, and the sums are
  /// not divided. Again in the same pass it sends nothing, and its result is the same. Errors: usage_error if not every
  /// parameter was reduced; nothing was sent then.
  task<grad::step> average() {
    if (!mine_.begun()) throw usage_error("sharded_optimizer: average() and step() belong in a pass; begin() it");
    if (reduced_.missing() < parameters_.size())
      throw usage_error("sharded_optimizer: parameter " + std::to_string(reduced_.missing()) + " of " +
                        std::to_string(parameters_.size()) + " was not reduced in this pass");
    co_return co_await mine_.average(*world_, "sharded_optimizer");
  }
  /// This rank's part of the mean, between average() and step(): to measure it, say, for a loss_scaler or clipping.
  [[nodiscard]] std::span<master_t<T>> gradient_shard() noexcept { return mine_.gradients(); }
  /// A step by the mean times `factor`, that of a loss_scaler or of clipping; none, whose bytes are saved, where a rank
  /// skips or all weights are 0. Ends the pass. The result is that of average().
  task<grad::step> step(double factor = 1) {
    if (!mine_.averaged()) co_await average();
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
  /// After load_sharded(): from a step above 0 the copy in float stands, and else follows the parameters once more.
  void resume(std::uint64_t steps) noexcept { mine_.resume(steps); }
  [[nodiscard]] std::vector<tensor_shard> shards(const std::string& prefix = "optimizer.") {
    std::vector<tensor_shard> all;
    if constexpr (has_master<T>) all.push_back(shard(prefix + "parameters", stepped(), first(), parameters_.size()));
    for (std::size_t s = 0; s < Rule::slots; ++s)
      all.push_back(shard(prefix + std::to_string(s), mine_.slots()[s], first(), parameters_.size()));
    return all;
  }

 private:
  struct parts {
    shares cut;
    std::vector<wide> master;
    shard_state<wide, Rule> mine;
  };
  sharded_optimizer(Comm& world, std::span<T> parameters, parts&& p)
      : world_(&world),
        parameters_(parameters),
        cut_(std::move(p.cut)),
        master_(std::move(p.master)),
        mine_(std::move(p.mine)) {}
  static parts make(Comm& world, std::size_t elements, const Rule& rule, const std::source_location& where) {
    const auto make_mine = [&] {
      shares cut{elements, world.size(), world.rank()};
      std::vector<wide> master(has_master<T> ? cut.size() : 0);
      shard_state<wide, Rule> mine{cut.size(), rule};
      return parts{std::move(cut), std::move(master), std::move(mine)};
    };
    return detail::make_shards(world, "sharded_optimizer", {&elements, 1}, dtype_of<T>(), Rule::slots, dtype_of<wide>(),
                               make_mine, where);
  }

  void check_count(std::size_t gradients) const {
    if (gradients != parameters_.size())
      throw usage_error("sharded_optimizer: " + std::to_string(gradients) + " gradients for " +
                        std::to_string(parameters_.size()) + " parameters");
  }
  /// This rank's parameters as steps change them. Before the first step the master follows the parameters, wherever it
  /// would not become them: they may be broadcast after shards() has been called, and what is loaded is finer.
  std::span<wide> stepped() {
    const auto mine = parameters_.subspan(first(), size());
    if constexpr (has_master<T>) {
      if (!std::exchange(widened_, true)) {
        widen<T>(mine, master_);
      } else if (steps() == 0) {
        for (std::size_t i = 0; i < mine.size(); ++i)
          if (const auto now = static_cast<wide>(mine[i]); static_cast<wide>(T(master_[i])) != now) master_[i] = now;
      }
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
  std::vector<wide> master_;  // where T has 16 bits
  bool widened_ = false;      // it holds something
  shard_state<wide, Rule> mine_;
  std::vector<std::vector<std::size_t>> slices_;  // how the stretches of a pass are divided; belong to operations
  std::size_t used_ = 0;
  coverage reduced_;  // in this pass
};

template <class Comm, class T, std::size_t N, class Rule>
sharded_optimizer(Comm&, std::span<T, N>, Rule) -> sharded_optimizer<Comm, T, Rule>;

}  // namespace tutti::train
