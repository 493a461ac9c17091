#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/summation_tree.hpp>
#include <tutti/grad/working_copies.hpp>

namespace tutti::grad {

/// A hook whose sums have the same bits for any number of ranks: a batch is cut into a fixed number of shards, whose
/// gradients are added pair by pair in one binary tree. A rank computes its shards() one after another, calls keep()
/// after each but the last, and marks the gradients of the last ready, in a pass of contribution::sum without
/// predivide. Gradients hold the sums of one shard at a time: overwrite them, and zero those that a shard does not use.
///
/// |error| <= ceil(log2 s) u sum |g| for s shards; u = 2^-24 for float, 2^-53 for double, 2^-8 for bfloat16. Infinities
/// and denormals as IEEE adds them; a NaN is a NaN on all ranks, but its payload may differ. float16 is refused. Bytes:
/// (p + 1) / 2 times those of an all_reduce, if a rank holds p nodes of the tree: p = 1 if s / n is a power of two,
/// else up to 2 log2(s / n + 1). Half of them are sent in ready(). Memory: up to p copies of the gradients, or log2(s /
/// n) while shards are kept, and p copies of the received parts.
class reproducible_hook {
 public:
  /// Divides `shards` among the ranks. Their number must be the same in all runs that are to have equal bits; best a
  /// power of two times the number of ranks of each run. Throws usage_error for 0.
  template <class Comm>
  reproducible_hook(const Comm& world, std::size_t shards)
      : rank_(static_cast<std::size_t>(world.rank())), ranks_(static_cast<std::size_t>(world.size())), none_(ranks_) {
    if (shards == 0) throw usage_error("reproducible_hook: a batch of 0 shards; give at least 1");
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto nodes = nodes_of(part_of(shards, r, ranks_));
      begins_.push_back(all_.size());
      all_.insert(all_.end(), nodes.begin(), nodes.end());
      rounds_ = (std::max)(rounds_, nodes.size());
    }
    begins_.push_back(all_.size());
    mine_ = part_of(shards, rank_, ranks_);
  }

  reproducible_hook(reproducible_hook&&) = default;
  reproducible_hook& operator=(reproducible_hook&&) = default;

  /// Returns the shards that this rank computes, in this order; none if there are more ranks than shards.
  [[nodiscard]] number_range shards() const noexcept { return mine_; }

  /// Adds the gradients of one shard to this rank's partial sums, from the reducer that has this hook. Call it after
  /// each shard but the last. Throws usage_error for one shard too many.
  template <class Reducer>
  void keep(const Reducer& from) {
    const auto& buckets = from.layout().buckets;
    for (std::size_t b = 0; b < buckets.size(); ++b)
      visit_gradient(buckets[b].type, [&]<class T>() { keep_bucket<T>(state_of(b), buckets[b], from); });
  }
  /// Calls keep() for all remaining shards but the last, with the present gradients: before pass.skip().
  template <class Reducer>
  void keep_rest(const Reducer& from) {
    while (!from.layout().buckets.empty() && state_of(0).taken + 1 < mine_.size()) keep(from);
  }

  /// Reduces a bucket. Throws usage_error, before anything is sent, if a shard was not kept, for float16, and for
  /// another communicator than the constructor's.
  template <class Comm, number T>
  task<> operator()(Comm& world, bucket_view<T> b) {
    if (std::same_as<T, float16>) refuse("gradients of float16; use bfloat16, float or double");
    if (static_cast<std::size_t>(world.rank()) != rank_ || static_cast<std::size_t>(world.size()) != ranks_)
      refuse("it was made for another world than the reducer");
    state& s = state_of(b.index);
    if (s.taken + 1 != (std::max)(mine_.size(), std::size_t{1}))
      refuse(std::to_string(s.taken) + " shards were kept and one marked ready, of " + std::to_string(mine_.size()));
    const auto g = b.gradients();
    if (s.taken > 0 && s.sums[0].size() != g.size_bytes())
      refuse("gradients were kept in another type than travels; no hook may narrow them before this one");
    if (!mine_.empty())
      append(s.nodes, {0, mine_.end - 1},
             [&](std::size_t left, std::size_t) { add<T>(s.template sum<T>(left), g, g); });
    op tail = world.all_reduce(b.tail(), sum, {}, b.where);
    if (ranks_ == 1) return alone(std::move(tail), b, s);
    send(world, b, s);
    return gather(world, std::move(tail), b, s);
  }

  /// Discards the partial sums.
  void reset() noexcept {
    states_.clear();
    copies_.clear();
  }

  /// Throws usage_error for options of a reducer, or of a pass, with which the bits would depend on the number of
  /// ranks.
  void check(const reducer_options& options) const {
    if (options.predivide != 1)
      refuse("predivide is " + std::to_string(options.predivide) +
             ", and bits would depend on the number of ranks; leave it at 1");
  }
  void check(contribution what) const {
    if (what != contribution::sum)
      refuse(
          "a mean is multiplied by its weight, and bits would depend on the number of ranks; begin(weight, "
          "contribution::sum), with gradients that are sums over samples");
  }

 private:
  // The state of one bucket.
  struct state {
    std::vector<tree_node> nodes;              // tree nodes of the shards that were kept
    std::size_t taken = 0;                     // number of these shards
    std::vector<std::vector<std::byte>> sums;  // partial sum of each node
    working_copies<std::byte>::copy arrived;   // this rank's part of all ranks' nodes, while the bucket is in flight
    std::vector<std::size_t> parts;            // elements of the bucket for each rank
    std::vector<std::size_t> counts, offsets;  // received from each rank, round by round
    std::vector<op> exchanges;                 // destroyed before the memory

    template <class T>
    [[nodiscard]] std::span<T> sum(std::size_t node) noexcept {
      return {reinterpret_cast<T*>(sums[node].data()), sums[node].size() / sizeof(T)};
    }
  };

  [[noreturn]] static void refuse(const std::string& why) { throw usage_error("reproducible_hook: " + why); }

  state& state_of(std::size_t bucket) {
    while (states_.size() <= bucket) states_.emplace_back();
    return states_[bucket];
  }

  // Computes out = left + right, each element rounded once; `out` may be either.
  template <class T>
  static void add(std::span<const T> left, std::span<const T> right, std::span<T> out) {
    const auto with = erase_type<T>(tutti::sum);
    const void* const both[] = {left.data(), right.data()};
    with.fold_all(both, 2, out.data(), out.size(), with.context.data());
  }

  template <class T, class Reducer>
  void keep_bucket(state& s, const bucket& k, const Reducer& from) {
    if (s.taken + 1 >= mine_.size()) refuse("one shard too many was kept: mark the last one ready");
    bool joined = false;
    const std::size_t fresh = s.nodes.size();
    append(s.nodes, {0, mine_.first + s.taken++}, [&](std::size_t left, std::size_t right) {
      const auto to = s.template sum<T>(left);
      if (right != fresh)
        add<T>(to, s.template sum<T>(right), to);
      else
        for (const bucket_slot& slot : k.slots) {
          const auto half = to.subspan(slot.offset, slot.count);
          add<T>(half, gradient_of<T>(from, slot), half);
        }
      joined = true;
    });
    if (joined) return;
    if (s.sums.size() == fresh) s.sums.emplace_back();
    s.sums[fresh].resize(k.count * sizeof(T));  // padding is zero, and stays so
    for (const bucket_slot& slot : k.slots) {
      const auto g = gradient_of<T>(from, slot);
      std::copy(g.begin(), g.end(), s.template sum<T>(fresh).begin() + static_cast<std::ptrdiff_t>(slot.offset));
    }
  }
  template <class T, class Reducer>
  static std::span<const T> gradient_of(const Reducer& from, const bucket_slot& slot) {
    return from.template gradient<T>(static_cast<std::size_t>(slot.parameter));
  }

  // Adds the nodes that have no partner, if the number of shards is not a power of two, from the last one on.
  template <class T>
  task<> alone(op given, bucket_view<T> b, state& s) {
    op tail = std::move(given);
    const auto g = b.gradients();
    for (std::size_t i = s.nodes.size() - 1; i-- > 0;) add<T>(s.template sum<T>(i), g, g);
    end(s);
    co_await std::move(tail);
  }

  // Sends each rank its part of the bucket from every node: in one round the first node of all ranks, then the second,
  // ...
  template <class Comm, class T>
  void send(Comm& world, const bucket_view<T>& b, state& s) {
    const auto g = b.gradients();
    prepare<T>(g.size(), s);
    s.arrived = copies_.take(world, all_.size() * s.parts[rank_] * sizeof(T));
    const auto to = arrived<T>(s);
    for (std::size_t round = 0; round < rounds_; ++round) {
      const bool mine = round < s.nodes.size();
      const std::span<const T> from = !mine                         ? std::span<const T>{}
                                      : round + 1 == s.nodes.size() ? g
                                                                    : s.template sum<T>(round);
      const auto at = round * ranks_;
      s.exchanges.push_back(world.all_to_all_v(
          from, layout{mine ? s.parts : none_}, to,
          layout{std::span{s.counts}.subspan(at, ranks_), std::span{s.offsets}.subspan(at, ranks_)}, {}, b.where));
    }
  }
  template <class T>
  static std::span<T> arrived(const state& s) noexcept {
    return {reinterpret_cast<T*>(s.arrived.span().data()), s.arrived.span().size() / sizeof(T)};
  }
  template <class T>
  void prepare(std::size_t count, state& s) {
    if (!s.parts.empty()) return;
    s.counts.clear();
    s.offsets.clear();
    for (std::size_t r = 0; r < ranks_; ++r)
      s.parts.push_back(part_of(count / line_elements<T>, r, ranks_).size() * line_elements<T>);
    s.parts.back() += count % line_elements<T>;  // memory of the caller's has no padding
    const std::size_t part = s.parts[rank_];
    for (std::size_t round = 0; round < rounds_; ++round)
      for (std::size_t r = 0; r < ranks_; ++r) {
        const bool there = begins_[r] + round < begins_[r + 1];
        s.counts.push_back(there ? part : 0);
        s.offsets.push_back(there ? (begins_[r] + round) * part : 0);
      }
    s.exchanges.reserve(rounds_);
  }

  template <class Comm, class T>
  task<> gather(Comm& world, op given, bucket_view<T> b, state& s) {
    op tail = std::move(given);
    for (op& f : s.exchanges) co_await std::move(f);
    s.exchanges.clear();
    const auto g = b.gradients();
    const layout blocks{s.parts};
    const auto own = g.subspan(blocks.begin(rank_), s.parts[rank_]);
    fold(s, own);
    end(s);
    co_await world.all_gather_v(own, g, blocks, {}, b.where);
    co_await std::move(tail);
  }
  template <class T>
  void fold(state& s, std::span<T> into) {
    const auto sums = [&](std::size_t node) { return arrived<T>(s).subspan(places_[node] * into.size(), into.size()); };
    folded_.clear();
    places_.resize(all_.size());
    for (std::size_t k = 0; k < all_.size(); ++k) {
      places_[folded_.size()] = k;
      append(folded_, all_[k],
             [&](std::size_t left, std::size_t right) { add<T>(sums(left), sums(right), sums(left)); });
    }
    for (std::size_t i = folded_.size() - 1; i-- > 0;) add<T>(sums(i), sums(i + 1), sums(i));
    std::copy(sums(0).begin(), sums(0).end(), into.begin());
  }
  static void end(state& s) noexcept {
    s.nodes.clear();
    s.taken = 0;
    s.arrived = {};
  }

  std::size_t rank_, ranks_;
  number_range mine_;
  std::vector<tree_node> all_;       // nodes of all ranks, in order
  std::vector<std::size_t> begins_;  // first node of each rank in all_
  std::vector<std::size_t> none_;    // zeros: no elements for any rank
  std::size_t rounds_ = 0;           // largest number of nodes of a rank
  std::vector<tree_node> folded_;    // while a fold runs
  std::vector<std::size_t> places_;
  working_copies<std::byte> copies_;
  std::deque<state> states_;  // destroyed before the copies
};

}  // namespace tutti::grad
