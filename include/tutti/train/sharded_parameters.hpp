#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/weight.hpp>
#include <tutti/train/array_pool.hpp>
#include <tutti/train/make_shards.hpp>
#include <tutti/train/master.hpp>
#include <tutti/train/shard_state.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <tutti/train/shares.hpp>
#include <tutti/train/update_rule.hpp>

namespace tutti::train {

/// Parameters that are divided among the ranks, and so are their gradients and what an update rule remembers (ZeRO-3,
/// FSDP; Rajbhandari et al., 2020). A unit of them, such as a layer, is whole only while it is used: gather() it before
/// and release() it after, scatter() its gradients, step(). Equal to the undivided step, bit for bit where the sums of
/// gradients are. Made by shard_parameters<T>(world, units, rule).
///
/// Collective: made by all ranks with equal units; gather(), scatter(), average() and step() are called in one order
/// everywhere, each awaited before the next call. One thread at a time; `world` must outlive it. Any number of ranks
/// and elements. Memory, for N elements on n ranks: (2 + slots) N / n, and up to four units. Costs of a step: N
/// elements gathered for each gather() of them, N reduced and scattered. T of 16 bits is what is gathered; gradients
/// are float then, and so is a copy of this rank's part, which steps.
template <parameter_number T, class Comm, update_rule<master_t<T>> Rule>
class sharded_parameters {
  using wide = master_t<T>;
  struct parts;

 public:
  /// `units` are numbers of elements. Parameters are 0 at first: assign() them, or load what shards() names. Blocks.
  /// Errors: error{mismatch} on all ranks where units or rules differ; error{out_of_resources} where another rank has
  /// no memory.
  sharded_parameters(Comm& world, std::span<const std::size_t> units, Rule rule,
                     std::source_location where = std::source_location::current())
      : sharded_parameters(world, detail::make_shards(
                                      world, "sharded_parameters", units, dtype_of<T>(), Rule::slots, dtype_of<wide>(),
                                      [&] { return parts{world, units, rule}; }, where)) {}
  sharded_parameters(const sharded_parameters&) = delete;
  sharded_parameters& operator=(const sharded_parameters&) = delete;
  /// In the midst of a pass it aborts the communicator: the others would wait. Between average() and step() it does so
  /// where an exception drops it; else all ranks leave the pass without a step, as after an overflow.
  ~sharded_parameters() {
    if (mine_.broken_off()) world_->abort();
  }

  [[nodiscard]] std::size_t size() const noexcept { return units_.size(); }
  /// Whether a unit is whole here, or on its way.
  [[nodiscard]] bool held(std::size_t unit) const noexcept { return unit < size() && units_[unit].held; }
  /// Of all memory that it has here.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return own_.size() * sizeof(T) + master_.size() * sizeof(wide) + mine_.gradients().size_bytes() + mine_.bytes() +
           pool_.bytes() + gradient_pool_.bytes();
  }

  /// Takes over this rank's part of a unit; `whole` is equal on all ranks. Between passes; sends nothing. A unit that
  /// is held is released.
  void assign(std::size_t unit, std::span<const T> whole) {
    auto& k = at(unit, "assign");
    if (whole.size() != k.cut.elements())
      refuse("assign", unit, std::to_string(whole.size()) + " elements of " + std::to_string(k.cut.elements()));
    drop(k);
    widen<T>(whole.subspan(k.cut.first(), k.cut.size()), stepped().subspan(k.first, k.cut.size()));
  }

  /// Begins a pass, as grad::reducer::begin(): this rank's gradients count for `weight`. Starts to gather what the last
  /// pass gathered first. Errors: usage_error for a bad weight, and nothing was sent then; and in a pass that was left
  /// before average(), which also aborts the communicator, as the other ranks are still in it.
  void begin(double weight = 1, grad::contribution what = grad::contribution::mean) {
    const bool left = mine_.begun() && mine_.averaged();
    mine_.begin(*world_, "sharded_parameters", weight, what);
    if (left) end_gathers();  // maybe on this rank alone: as in step(), so that all gather alike
    std::fill(mine_.gradients().begin(), mine_.gradients().end(), wide{});
    for (auto& k : units_) k.scattered = false;
    seen_.clear();
    place_ = 0;
    if (!order_.empty()) fetch(order_[0]);
  }

  /// All parameters of a unit, valid until release() or step(), or begin() after a pass without its step. What the last
  /// pass gathered next starts to travel, so that it moves while this one computes: while somebody polls, or a
  /// progress_thread does. Also outside a pass, to evaluate. A unit that is held costs nothing.
  [[nodiscard]] task<std::span<const T>> gather(std::size_t unit) {
    auto& k = at(unit, "gather");
    fetch(unit);
    fetch(follower(unit));
    if (mine_.begun()) seen_.push_back(unit);
    if (k.coming) {
      op flight = *std::exchange(k.coming, std::nullopt);
      co_await std::move(flight);
    }
    co_return k.whole.span().first(k.cut.elements());
  }
  /// Gives the memory of a unit's parameters back; they must not be read any more. Sends nothing.
  void release(std::size_t unit) {
    auto& k = at(unit, "release");
    if (!k.coming) let_go(k);
  }

  /// This rank's gradients of a unit, to add to: zeros at first, and after each scatter() of them.
  std::span<master_t<T>> gradients(std::size_t unit) {
    auto& k = at(unit, "gradients");
    if (!mine_.begun() || mine_.averaged()) refuse("gradients", unit, "no pass has begun");
    if (!k.computes) {
      k.gradient = gradient_pool_.take(*world_, k.cut.elements());
      k.computes = true;
      std::fill(k.gradient.begin(), k.gradient.end(), wide{});
    }
    return k.gradient.span().first(k.cut.elements());
  }
  /// Starts to add up the ranks' gradients of a unit, of which each keeps the sums of its part, and ends when those
  /// of the scatter() before have arrived. Their memory belongs to it from the call on. Every unit at least once in a
  /// pass; again, for micro-batches, adds to the sums.
  [[nodiscard]] task<> scatter(std::size_t unit) {
    auto& k = at(unit, "scatter");
    if (!k.computes) refuse("scatter", unit, "it has no gradients; fetch gradients() first, also where they are zeros");
    co_await mine_.all_begun();
    const auto all = k.gradient.span().first(k.cut.elements());
    grad::multiply(all, mine_.scale());
    auto flight = world_->reduce_scatter_v(all, all.subspan(k.cut.first(), k.cut.size()), k.cut.counts(), sum);
    sending now{unit, std::move(k.gradient), std::move(flight)};
    k.computes = false;
    k.scattered = true;
    co_await settle();
    last_.emplace(std::move(now));
  }

  /// This rank cannot use its gradients: an infinity, or no memory to compute them. No rank steps then, and step() and
  /// average() say so everywhere. Between begin() and average(); sends nothing, and the rank goes on with the pass: its
  /// other calls are as ever, on any values.
  void skip(grad::step why) { mine_.skip(why, "sharded_parameters"); }
  /// The sum of all ranks' weights in the last pass that was averaged; 0 before the first, and when all ranks have run
  /// out of samples.
  [[nodiscard]] double total_weight() const noexcept { return mine_.total_weight(); }
  /// Makes the sums the weighted mean; step() does it where this was not called. Where all weights are 0, it is 0. The
  /// result is equal on all ranks: whether one of them skips, and the sums are not divided. Again in the same pass it
  /// sends nothing, and its result is the same. Errors: usage_error if not all gradients() of every unit were
  /// scattered; nothing was sent then; error{mismatch} on all ranks where some of them alone left the last pass without
  /// its step, from then on until all resume().
  [[nodiscard]] task<grad::step> average() {
    if (!mine_.begun()) throw usage_error("sharded_parameters: average() and step() belong in a pass; begin() it");
    for (std::size_t u = 0; u < size(); ++u)
      if (!units_[u].scattered || units_[u].computes)
        refuse("average", u, "its gradients were not scattered in this pass");
    co_await settle();
    co_return co_await mine_.average(*world_, "sharded_parameters");
  }
  /// This rank's part of the mean, between average() and step(): for a loss_scaler, or clipping.
  [[nodiscard]] std::span<master_t<T>> gradient_shard() noexcept { return mine_.gradients(); }
  /// A step by the mean times `factor`; none where a rank skips or all weights are 0. Ends the pass, and releases all
  /// units. The result is that of average(). To skip it by what all ranks know, begin() another pass, on all.
  [[nodiscard]] task<grad::step> step(double factor = 1) {
    if (!mine_.averaged()) co_await average();
    for (auto& k : units_) {
      if (k.coming) {
        op flight = *std::exchange(k.coming, std::nullopt);
        co_await std::move(flight);
      }
      let_go(k);
    }
    mine_.step(stepped(), factor);
    learn_order();
    co_return mine_.verdict();
  }

  /// The rule, to change its rate; steps so far, to be saved and resumed.
  [[nodiscard]] Rule& rule() noexcept { return mine_.rule(); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return mine_.steps(); }
  void resume(std::uint64_t steps) noexcept {
    if (mine_.begun() && mine_.averaged()) learn_order();
    mine_.resume(steps);
  }
  /// This rank's parts of each unit and of what the rule remembers for it, for save_sharded() and load_sharded(). Ends
  /// what is on its way and releases all units, as their values are old once their parts are loaded: call it alike on
  /// all ranks, between passes, and anew for each load. Sends nothing. Parameters of 16 bits are saved as float.
  /// Errors: usage_error in a pass.
  [[nodiscard]] std::vector<tensor_shard> shards(const std::string& prefix = "unit.") {
    if (mine_.begun() && !mine_.averaged())
      throw usage_error("sharded_parameters: shards() in a pass; step() it first");
    for (auto& k : units_) drop(k);
    std::vector<tensor_shard> all;
    for (std::size_t u = 0; u < size(); ++u) {
      const auto& k = units_[u];
      const std::string text = prefix + std::to_string(u) + ".";
      all.push_back(
          shard(text + "parameters", stepped().subspan(k.first, k.cut.size()), k.cut.first(), k.cut.elements()));
      for (std::size_t s = 0; s < Rule::slots; ++s)
        all.push_back(shard(text + std::to_string(s), mine_.slots()[s].subspan(k.first, k.cut.size()), k.cut.first(),
                            k.cut.elements()));
    }
    return all;
  }

 private:
  struct divided_unit {
    divided_unit(shares how, std::size_t at) : cut(std::move(how)), first(at) {}
    shares cut;
    std::size_t first;      // of this rank's part in its own_
    mapped_array<T> whole;  // outlives what travels into it
    mapped_array<wide> gradient;
    std::optional<op> coming;  // into `whole`
    bool held = false, computes = false, scattered = false;
  };
  struct sending {
    std::size_t unit;
    mapped_array<wide> gradient;
    op flight;
  };

  struct parts {
    parts(Comm& world, std::span<const std::size_t> elements, const Rule& rule)
        : count(cut(world, elements)),
          own(world.template allocate<T>(count)),
          master(has_master<T> ? count : 0),
          mine(count, rule) {
      // Until a pass has been seen: a forward pass, then the backward pass.
      for (std::size_t u = 0; u < units.size(); ++u) order.push_back(u);
      for (std::size_t u = units.size(); u-- > 0;) order.push_back(u);
    }
    std::size_t cut(Comm& world, std::span<const std::size_t> elements) {
      std::size_t at = 0;
      for (const std::size_t n : elements)
        at += units.emplace_back(shares{n, world.size(), world.rank()}, at).cut.size();
      return at;
    }
    std::vector<divided_unit> units;
    std::size_t count;  // of this rank's elements
    mapped_array<T> own;
    std::vector<wide> master;
    shard_state<wide, Rule> mine;
    std::vector<std::size_t> order;
  };
  sharded_parameters(Comm& world, parts&& p)
      : world_(&world),
        own_(std::move(p.own)),
        master_(std::move(p.master)),
        mine_(std::move(p.mine)),
        units_(std::move(p.units)),
        order_(std::move(p.order)) {}

  [[noreturn]] static void refuse(const char* call, std::size_t unit, const std::string& why) {
    throw usage_error("sharded_parameters: " + std::string(call) + "() of unit " + std::to_string(unit) + ": " + why);
  }
  [[nodiscard]] divided_unit& at(std::size_t u, const char* call) {
    if (u >= size()) refuse(call, u, "there are " + std::to_string(size()));
    return units_[u];
  }
  /// This rank's parameters as steps change them.
  [[nodiscard]] std::span<wide> stepped() noexcept {
    if constexpr (has_master<T>)
      return master_;
    else
      return own_.span();
  }

  void fetch(std::size_t u) {
    auto& k = units_[u];
    if (k.held) return;
    k.whole = pool_.take(*world_, k.cut.elements());
    k.held = true;
    const auto part = own_.span().subspan(k.first, k.cut.size());
    if constexpr (has_master<T>) narrow<T>(stepped().subspan(k.first, k.cut.size()), part);
    k.coming.emplace(world_->all_gather_v(part, k.whole.span().first(k.cut.elements()), k.cut.counts()));
  }
  void drop(divided_unit& k) {
    if (k.coming) std::exchange(k.coming, std::nullopt)->wait();
    let_go(k);
  }
  void end_gathers() {
    for (auto& k : units_) drop(k);
    learn_order();
  }
  void learn_order() noexcept {
    if (!seen_.empty()) std::swap(order_, seen_);
  }
  void let_go(divided_unit& k) noexcept {
    if (k.held) pool_.give(std::move(k.whole));
    k.held = false;
  }
  // What was gathered after this unit in the last pass; the unit itself where there was nothing.
  [[nodiscard]] std::size_t follower(std::size_t u) noexcept {
    if (place_ >= order_.size() || order_[place_] != u)
      place_ = static_cast<std::size_t>(std::find(order_.begin(), order_.end(), u) - order_.begin());
    if (place_ < order_.size()) ++place_;
    return place_ < order_.size() ? order_[place_] : u;
  }

  // Adds what the last scatter() has brought to this rank's sums.
  task<> settle() {
    if (!last_) co_return;
    sending s = *std::exchange(last_, std::nullopt);
    co_await std::move(s.flight);
    const auto& k = units_[s.unit];
    const auto from = s.gradient.span().subspan(k.cut.first(), k.cut.size());
    const auto to = mine_.gradients().subspan(k.first, k.cut.size());
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    gradient_pool_.give(std::move(s.gradient));
  }

  Comm* world_;
  mapped_array<T> own_;       // this rank's parameters, unit by unit
  std::vector<wide> master_;  // the same, where T has 16 bits
  shard_state<wide, Rule> mine_;
  array_pool<T> pool_;
  array_pool<wide> gradient_pool_;
  std::vector<divided_unit> units_;
  std::optional<sending> last_;     // the scatter() whose sums are not added yet
  std::vector<std::size_t> order_;  // units as the last pass gathered them
  std::vector<std::size_t> seen_;   // and as this one does
  std::size_t place_ = 0;           // in order_
};

/// `auto p = shard_parameters<float>(world, units, adamw{.rate = 1e-3})`: see sharded_parameters.
template <parameter_number T, class Comm, update_rule<master_t<T>> Rule>
[[nodiscard]] sharded_parameters<T, Comm, Rule> shard_parameters(
    Comm& world, std::span<const std::size_t> units, Rule rule,
    std::source_location where = std::source_location::current()) {
  return {world, units, rule, where};
}

}  // namespace tutti::train
