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

/// Parameters that are sharded over the ranks, with their gradients and the update rule's memory (ZeRO-3, FSDP;
/// Rajbhandari et al., 2020). A unit of them, such as a layer, is whole only while it is used: gather() it before and
/// release() it after, scatter() its gradients, and step(). The step equals one without sharding, bit for bit if the
/// summed gradients do. Made by shard_parameters<T>(world, units, rule).
///
/// Collective: all ranks construct it with equal units, and call gather(), scatter(), average() and step() in equal
/// order, each awaited before the next. One thread at a time; `world` must outlive it. Memory for N elements on n
/// ranks, in elements: (2 + slots) N / n, and up to four units. Cost of a step: the elements of each gather(), and N
/// reduced and scattered. 16-bit parameters are gathered as such; their gradients are float, and each rank also keeps
/// its part of the parameters in float, to which steps are added.
template <parameter_number T, class Comm, update_rule<master_t<T>> Rule>
class sharded_parameters {
  using wide = master_t<T>;
  struct parts;

 public:
  /// Makes units with these numbers of elements. Parameters are 0 at first: assign() them, or load shards().
  /// Collective; blocks. Errors: error{mismatch} on all ranks if units or the rules' slots differ; on all ranks if one
  /// has no memory.
  sharded_parameters(Comm& world, std::span<const std::size_t> units, Rule rule,
                     std::source_location where = std::source_location::current())
      : sharded_parameters(world, detail::make_shards(
                                      world, "sharded_parameters", units, dtype_of<T>(), Rule::slots, dtype_of<wide>(),
                                      [&] { return parts{world, units, rule}; }, where)) {}
  sharded_parameters(const sharded_parameters&) = delete;
  sharded_parameters& operator=(const sharded_parameters&) = delete;
  /// Aborts the communicator if a pass has begun and is not averaged, as the other ranks would wait for this one.
  /// Between average() and step(), does so only during an exception: without one, all ranks leave the pass without a
  /// step, as after an overflow.
  ~sharded_parameters() {
    if (mine_.broken_off()) world_->abort();
  }

  /// Returns the number of units.
  [[nodiscard]] std::size_t size() const noexcept { return units_.size(); }
  /// Returns true if this rank has memory for the whole unit: it is gathered, or its gather is in flight.
  [[nodiscard]] bool held(std::size_t unit) const noexcept { return unit < size() && units_[unit].held; }
  /// Returns the bytes of all its memory on this rank.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return own_.size() * sizeof(T) + master_.size() * sizeof(wide) + mine_.gradients().size_bytes() + mine_.bytes() +
           pool_.bytes() + gradient_pool_.bytes();
  }

  /// Copies this rank's part of a unit from `whole`, which must be equal on all ranks, and releases the unit. Call it
  /// between passes, on all ranks. Sends nothing. Errors: usage_error for another number of elements.
  void assign(std::size_t unit, std::span<const T> whole) {
    auto& k = at(unit, "assign");
    if (whole.size() != k.cut.elements())
      refuse("assign", unit, std::to_string(whole.size()) + " elements of " + std::to_string(k.cut.elements()));
    drop(k);
    widen<T>(whole.subspan(k.cut.first(), k.cut.size()), stepped().subspan(k.first, k.cut.size()));
  }

  /// Begins a pass, and starts to gather the unit that the last pass gathered first. `weight` is the weight of this
  /// rank's gradients in the mean, as in grad::reducer::begin(). Collective. Errors: usage_error for a bad weight, and
  /// nothing was sent then; usage_error if the last pass was left before average(), which also aborts the communicator,
  /// as the other ranks are still in that pass.
  void begin(double weight = 1, grad::contribution what = grad::contribution::mean) {
    const bool left = mine_.begun() && mine_.averaged();
    mine_.begin(*world_, "sharded_parameters", weight, what);
    if (left) end_gathers();  // as step() would: other ranks may have called it, and all must gather alike
    std::fill(mine_.gradients().begin(), mine_.gradients().end(), wide{});
    for (auto& k : units_) k.scattered = false;
    seen_.clear();
    place_ = 0;
    if (!order_.empty()) fetch(order_[0]);
  }

  /// Gathers a unit and returns all its parameters, valid until release() or step(), or until begin() if that follows a
  /// pass without a step. Collective. Also starts to gather the unit that the last pass gathered next, so that it
  /// arrives during the computation if a thread polls, such as a progress_thread. May be called outside a pass, for
  /// evaluation. Sends nothing for units that are held.
  [[nodiscard]] task<std::span<const T>> gather(std::size_t unit) {
    auto& k = at(unit, "gather");
    fetch(unit);
    fetch(follower(unit));
    if (mine_.begun()) seen_.push_back(unit);
    if (k.coming) {
      op operation = *std::exchange(k.coming, std::nullopt);
      co_await std::move(operation);
    }
    co_return k.whole.span().first(k.cut.elements());
  }
  /// Releases the memory of a unit's parameters, which must not be read any more. Sends nothing. Does nothing for a
  /// unit that is not held, or whose gather() was started ahead and not awaited.
  void release(std::size_t unit) {
    auto& k = at(unit, "release");
    if (!k.coming) let_go(k);
  }

  /// Returns the buffer of this rank's gradients of a unit, to add to. Zeros at first, and after each scatter().
  /// Errors: usage_error outside a pass.
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
  /// Starts to sum the ranks' gradients of a unit; each rank keeps the sums of its part. Ends when the sums of the
  /// scatter() before have arrived. Collective: every unit at least once in a pass; a second call, for micro-batches,
  /// adds to the sums. The buffer from gradients() must not be used after the call. Errors: usage_error if it was not
  /// fetched; as of reduce_scatter_v.
  [[nodiscard]] task<> scatter(std::size_t unit) {
    auto& k = at(unit, "scatter");
    if (!k.computes) refuse("scatter", unit, "it has no gradients; fetch gradients() first, also where they are zeros");
    co_await mine_.all_begun();
    const auto all = k.gradient.span().first(k.cut.elements());
    grad::multiply(all, mine_.scale());
    auto operation = world_->reduce_scatter_v(all, all.subspan(k.cut.first(), k.cut.size()), k.cut.counts(), sum);
    sending now{unit, std::move(k.gradient), std::move(operation)};
    k.computes = false;
    k.scattered = true;
    co_await settle();
    last_.emplace(std::move(now));
  }

  /// Makes all ranks skip the step of this pass, as this rank cannot use its gradients: they are infinite, or could not
  /// be computed. average() and step() return the reason on all ranks. Sends nothing; this rank must still make the
  /// other calls of the pass, with any values. Errors: usage_error unless between begin() and average().
  void skip(grad::step why) { mine_.skip(why, "sharded_parameters"); }
  /// Returns the sum of all ranks' weights in the last pass that was averaged; 0 before the first, and if all ranks
  /// have run out of samples.
  [[nodiscard]] double total_weight() const noexcept { return mine_.total_weight(); }
  /// Divides the sums, which makes them the weighted mean; 0 if all weights are 0. Only needed to use gradient_shard():
  /// step() calls it otherwise. Collective: an all_reduce of 24 bytes. Returns the decision, equal on all ranks: if one
  /// skips, all do, and the sums are not divided. A second call in a pass sends nothing and returns the same. Errors:
  /// usage_error if gradients of a unit were not scattered, and nothing was sent then; error{mismatch} on all ranks if
  /// some have left the last pass after average() without its step, and in all later passes until all resume().
  [[nodiscard]] task<grad::step> average() {
    if (!mine_.begun()) throw usage_error("sharded_parameters: average() and step() belong in a pass; begin() it");
    for (std::size_t u = 0; u < size(); ++u)
      if (!units_[u].scattered || units_[u].computes)
        refuse("average", u, "its gradients were not scattered in this pass");
    co_await settle();
    co_return co_await mine_.average(*world_, "sharded_parameters");
  }
  /// Returns this rank's part of the mean, unit by unit, between average() and step(), for a loss_scaler or clipping.
  [[nodiscard]] std::span<master_t<T>> gradient_shard() noexcept { return mine_.gradients(); }
  /// Takes a step with the mean times `factor`, ends the pass and releases all units. Takes none if a rank skips or all
  /// weights are 0. Collective. Returns the decision of average(). To leave out the step for a reason that all ranks
  /// know, begin() another pass on all of them instead.
  [[nodiscard]] task<grad::step> step(double factor = 1) {
    if (!mine_.averaged()) co_await average();
    for (auto& k : units_) {
      if (k.coming) {
        op operation = *std::exchange(k.coming, std::nullopt);
        co_await std::move(operation);
      }
      let_go(k);
    }
    mine_.step(stepped(), factor);
    learn_order();
    co_return mine_.verdict();
  }

  /// Return the rule, for example to change its rate, and the number of steps so far; resume() continues at one, after
  /// load_sharded().
  [[nodiscard]] Rule& rule() noexcept { return mine_.rule(); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return mine_.steps(); }
  void resume(std::uint64_t steps) noexcept {
    if (mine_.begun() && mine_.averaged()) learn_order();
    mine_.resume(steps);
  }
  /// Returns this rank's parts of each unit and of the rule's memory for it, for save_sharded() and load_sharded().
  /// They refer to memory of this object. Waits for gathers in flight and releases all units, whose values would be
  /// outdated after a load: call it on all ranks, between passes, and again for each load. Sends nothing. 16-bit
  /// parameters are saved as float. Errors: usage_error in a pass.
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
    std::size_t first;      // offset of this rank's part in own_
    mapped_array<T> whole;  // outlives `coming`, which writes to it
    mapped_array<wide> gradient;
    std::optional<op> coming;  // the gather in flight, if any
    bool held = false, computes = false, scattered = false;
  };
  struct sending {
    std::size_t unit;
    mapped_array<wide> gradient;
    op operation;
  };

  struct parts {
    parts(Comm& world, std::span<const std::size_t> elements, const Rule& rule)
        : count(cut(world, elements)),
          own(world.template allocate<T>(count)),
          master(has_master<T> ? count : 0),
          mine(count, rule) {
      // The order until a pass has been seen: that of a forward pass, then of its backward pass.
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
    std::size_t count;  // number of this rank's elements
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
  /// Returns this rank's parameters in the type in which steps change them.
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
  // Returns the unit that the last pass gathered after this one; the unit itself if there was none.
  [[nodiscard]] std::size_t follower(std::size_t u) noexcept {
    if (place_ >= order_.size() || order_[place_] != u)
      place_ = static_cast<std::size_t>(std::find(order_.begin(), order_.end(), u) - order_.begin());
    if (place_ < order_.size()) ++place_;
    return place_ < order_.size() ? order_[place_] : u;
  }

  // Awaits the last scatter() and adds its result to this rank's sums.
  task<> settle() {
    if (!last_) co_return;
    sending s = *std::exchange(last_, std::nullopt);
    co_await std::move(s.operation);
    const auto& k = units_[s.unit];
    const auto from = s.gradient.span().subspan(k.cut.first(), k.cut.size());
    const auto to = mine_.gradients().subspan(k.first, k.cut.size());
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    gradient_pool_.give(std::move(s.gradient));
  }

  Comm* world_;
  mapped_array<T> own_;       // this rank's parameters, unit by unit
  std::vector<wide> master_;  // the same in float if T has 16 bits
  shard_state<wide, Rule> mine_;
  array_pool<T> pool_;
  array_pool<wide> gradient_pool_;
  std::vector<divided_unit> units_;
  std::optional<sending> last_;     // the scatter() whose sums are not added yet
  std::vector<std::size_t> order_;  // units in the order of the last pass
  std::vector<std::size_t> seen_;   // units in the order of this pass
  std::size_t place_ = 0;           // position in order_
};

/// Returns sharded parameters: `auto p = shard_parameters<float>(world, units, adamw{.rate = 1e-3})`. Collective;
/// blocks; see sharded_parameters.
template <parameter_number T, class Comm, update_rule<master_t<T>> Rule>
[[nodiscard]] sharded_parameters<T, Comm, Rule> shard_parameters(
    Comm& world, std::span<const std::size_t> units, Rule rule,
    std::source_location where = std::source_location::current()) {
  return {world, units, rule, where};
}

}  // namespace tutti::train
