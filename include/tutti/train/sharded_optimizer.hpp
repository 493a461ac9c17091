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

/// An optimizer whose memory is sharded over the ranks (ZeRO; Rajbhandari et al., 2020): each rank updates its part of
/// the parameters, and all gather the parts. The step equals one without sharding, bit for bit if the summed gradients
/// do. Stage 1: `co_await step_reduced(gradients)`, with gradients that are averaged already, as by a grad::reducer.
/// Stage 2, in which no rank holds all reduced gradients: `begin(weight)`, `reduce(gradients, first)` for each range of
/// parameters once the backward pass has completed it, and `co_await step()`.
///
/// Collective: all ranks construct it with equal parameters, and make all calls in the same order. One thread at a
/// time; `world` and the parameters must outlive it. Memory on n ranks: slots of the rule x N / n elements; in stage 2
/// another N / n. Cost of a step: N elements reduced and scattered (stage 2) and N gathered, as much as one all_reduce.
/// For 16-bit parameters, gradients are float, and this rank also keeps its part of the parameters in float, to which
/// steps are added; see resume().
template <class Comm, parameter_number T, update_rule<master_t<T>> Rule>
class sharded_optimizer {
  using wide = master_t<T>;
  struct parts;

 public:
  /// Shards the optimizer of all parameters, which lie in one array. Collective; blocks. Errors: error{mismatch} on all
  /// ranks if the numbers of parameters, types or rules' slots differ; on all ranks if one has no memory.
  sharded_optimizer(Comm& world, std::span<T> parameters, Rule rule,
                    std::source_location where = std::source_location::current())
      : sharded_optimizer(world, parameters, make(world, parameters.size(), rule, where)) {}
  sharded_optimizer(const sharded_optimizer&) = delete;
  sharded_optimizer& operator=(const sharded_optimizer&) = delete;
  /// Aborts the communicator if a pass has begun and is not averaged, as the other ranks would wait for this one.
  /// Between average() and step(), does so only during an exception: without one, all ranks leave the pass without a
  /// step, as after an overflow.
  ~sharded_optimizer() {
    if (mine_.broken_off()) world_->abort();
  }

  /// Takes a step of stage 1 with the gradients of all parameters, which must be equal on all ranks. Reads only those
  /// of this rank's part. Collective. Errors: usage_error for another number of gradients; as of all_gather_v.
  task<> step_reduced(std::span<const master_t<T>> gradients) {
    check_count(gradients.size());
    mine_.step_by(stepped(), gradients.subspan(first(), size()));
    co_await tell();
  }

  /// Takes a step of stage 1 with gradients in several spans, in the order of the parameters, as those of a
  /// grad::reducer: `step_reduced(reducer.gradients())`. The list must stay valid until the task has ended.
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

  /// Begins a pass of stage 2. `weight` is the weight of this rank's gradients in the mean, as in
  /// grad::reducer::begin(); it is sent in an all_reduce of 56 bytes. Collective. Errors: usage_error for a bad weight,
  /// and nothing was sent then; usage_error if the last pass was left before average(), which also aborts the
  /// communicator, as the other ranks are still in that pass.
  void begin(double weight = 1, grad::contribution what = grad::contribution::mean) {
    mine_.begin(*world_, "sharded_optimizer", weight, what);
    reduced_.clear();
    used_ = 0;
  }
  /// Starts to sum the gradients of parameters [first, first + count) over the ranks; each rank keeps its part.
  /// Collective: every parameter once per pass, with equal ranges in equal order on all ranks. The first call blocks
  /// until all ranks have begun the pass. Multiplies `gradients` by the weight, but by 1 for equal weights above 0; the
  /// buffer must stay valid until the operation has ended. Several may be in flight; await all before average() and
  /// step(). Errors: usage_error outside a pass, after average(), and for parameters that do not exist or were reduced
  /// in this pass already.
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
  /// Makes all ranks skip the step of this pass, as this rank cannot use its gradients: they are infinite, or could not
  /// be computed. average() and step() return the reason on all ranks. Sends nothing; this rank must still make the
  /// other calls of the pass, with any values. Errors: usage_error unless between begin() and average().
  void skip(grad::step why) { mine_.skip(why, "sharded_optimizer"); }
  /// Returns the sum of all ranks' weights in the last pass that was averaged; 0 before the first, and if all ranks
  /// have run out of samples.
  [[nodiscard]] double total_weight() const noexcept { return mine_.total_weight(); }
  /// Divides the sums, which makes them the weighted mean; 0 if all weights are 0. Only needed to use gradient_shard():
  /// step() calls it otherwise. Collective: an all_reduce of 24 bytes. Returns the decision, equal on all ranks: if one
  /// skips, all do, and the sums are not divided. A second call in a pass sends nothing and returns the same. Errors:
  /// usage_error if not every parameter was reduced, and nothing was sent then; error{mismatch} on all ranks if some
  /// have left the last pass after average() without its step, and in all later passes until all resume().
  task<grad::step> average() {
    if (!mine_.begun()) throw usage_error("sharded_optimizer: average() and step() belong in a pass; begin() it");
    if (reduced_.missing() < parameters_.size())
      throw usage_error("sharded_optimizer: parameter " + std::to_string(reduced_.missing()) + " of " +
                        std::to_string(parameters_.size()) + " was not reduced in this pass");
    co_return co_await mine_.average(*world_, "sharded_optimizer");
  }
  /// Returns this rank's part of the mean, between average() and step(), for example for a loss_scaler or clipping.
  [[nodiscard]] std::span<master_t<T>> gradient_shard() noexcept { return mine_.gradients(); }
  /// Takes a step with the mean times `factor`, such as that of a loss_scaler or of clipping, gathers the parameters
  /// and ends the pass. Takes and sends none if a rank skips or all weights are 0. Collective. Returns the decision of
  /// average(). Errors: as of average() and all_gather_v.
  task<grad::step> step(double factor = 1) {
    if (!mine_.averaged()) co_await average();
    if (mine_.step(stepped(), factor)) co_await tell();
    co_return mine_.verdict();
  }

  /// Return the number of parameters that this rank updates, and the index of the first.
  [[nodiscard]] std::size_t size() const noexcept { return cut_.size(); }
  [[nodiscard]] std::size_t first() const noexcept { return cut_.first(); }
  /// Returns the bytes of the rule's memory and of the parameters in float on this rank.
  [[nodiscard]] std::size_t bytes() const noexcept { return mine_.bytes() + master_.size() * sizeof(wide); }

  /// Returns the rule, for example to change its rate.
  [[nodiscard]] Rule& rule() noexcept { return mine_.rule(); }
  /// Returns the number of steps so far, to be saved with shards().
  [[nodiscard]] std::uint64_t steps() const noexcept { return mine_.steps(); }
  /// Continues at a step, after load_sharded(). Parameters in float keep the loaded values if `steps` is above 0; else
  /// the first step sets them to the 16-bit parameters where those differ.
  void resume(std::uint64_t steps) noexcept { mine_.resume(steps); }
  /// Returns this rank's parts of the rule's memory, and of the parameters in float if there are any, for
  /// save_sharded() and load_sharded(). They refer to memory of this object.
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
  /// Returns this rank's parameters in the type in which steps change them. Until the first step, parameters in float
  /// that do not round to the 16-bit ones are set to those, which may be broadcast after shards() was called; others
  /// are kept, as loaded values are more precise.
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
  std::vector<wide> master_;  // this rank's parameters in float if T has 16 bits
  bool widened_ = false;      // master_ has been filled
  shard_state<wide, Rule> mine_;
  std::vector<std::vector<std::size_t>> slices_;  // layouts of the reduce() calls of a pass, which operations read
  std::size_t used_ = 0;
  coverage reduced_;  // parameters that were reduced in this pass
};

template <class Comm, class T, std::size_t N, class Rule>
sharded_optimizer(Comm&, std::span<T, N>, Rule) -> sharded_optimizer<Comm, T, Rule>;

}  // namespace tutti::train
