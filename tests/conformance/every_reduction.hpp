#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/algo/selection/supported.hpp>
#include <tutti/async/op.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/core/args.hpp>

#include <conformance/distribution.hpp>
#include <conformance/memory.hpp>
#include <conformance/reduction_cases.hpp>
#include <conformance/report.hpp>

#include <support/thread_state.hpp>

namespace conformance {

/// Elements of a case between two margins, aligned for the element and for nothing else.
class cells {
 public:
  cells(const reduction_case& c, std::size_t count, const std::vector<std::byte>& pattern)
      : case_(&c), count_(count), bytes_((count + 2 * margin) * c.bytes), memory_(own_memory.take(bytes_)) {
    std::fill_n(memory_.get(), bytes_, filler);
    for (std::size_t i = 0; i < count; i += c.period)
      std::memcpy(at(i), pattern.data(), std::min(c.period, count - i) * c.bytes);
  }
  [[nodiscard]] std::byte* at(std::size_t i) noexcept { return memory_.get() + (margin + i) * case_->bytes; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// The first of `count` elements from `begin` on that is not as in the pattern from its element `first` on.
  [[nodiscard]] std::size_t mismatch(std::size_t begin, std::size_t count, const std::vector<std::byte>& pattern,
                                     std::size_t first) {
    const std::size_t width = case_->bytes;
    for (std::size_t i = 0; i < count; ++i)
      if (std::memcmp(at(begin + i), pattern.data() + (first + i) % case_->period * width, case_->significant) != 0)
        return i;
    return count;
  }
  [[nodiscard]] bool intact() const noexcept {
    const auto clean = [](std::byte b) { return b == filler; };
    const std::span all{memory_.get(), bytes_};
    return std::ranges::all_of(all.first(margin * case_->bytes), clean) &&
           std::ranges::all_of(all.last(margin * case_->bytes), clean);
  }
  /// Of the values, whatever lies in their padding.
  [[nodiscard]] std::uint64_t digest() {
    std::uint64_t h = count_;
    for (std::size_t i = 0; i < count_; ++i) h = hash({at(i), case_->significant}, h);
    return h;
  }

 private:
  static constexpr std::size_t margin = 3;
  static constexpr std::byte filler{0x5a};
  const reduction_case* case_;
  std::size_t count_, bytes_;
  block_of_memory memory_;
};

/// A communicator's start() without the types of its calls, which a class derived from it may name.
template <class World>
struct untyped : World {
  template <class Args>
  static tutti::op start_on(World& w, const tutti::detail::shape& data, const tutti::call_options& how, const Args& a) {
    const auto start = &untyped::template start<Args>;
    return (w.*start)(data, how, std::source_location::current(), Args{a});
  }
};

/// Every collective that reduces, by every algorithm that it can be asked for, for one case: all in flight at once.
template <class World>
class every_reduction {
 public:
  every_reduction(session<World>& s, const reduction_case& c, std::size_t count)
      : s_(s), c_(c), count_(count), rank_(s.world.rank()), size_(s.world.size()), with_(c.with(s.world.rank())) {}

  /// Adds to `digests` what all ranks must have alike, and to `names` what it is.
  void run(std::vector<std::uint64_t>& digests, std::vector<which>& names) {
    start_all();
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      ops_[i].wait();
      expect(tutti_test::upper_halves_in_use() == 0, calls_[i]->name, "upper halves of vector registers are in use");
    }
    for (const auto& c : calls_) check(*c);
    for (const auto& c : calls_)
      if (c->agrees) {
        digests.push_back(c->buffer().digest());
        names.push_back(c->name);
      }
  }

 private:
  enum class place { here, elsewhere };  // the result
  struct call {
    which name;
    style how;
    std::unique_ptr<cells> in, out;    // without `out` it is in place
    std::size_t begin = 0, count = 0;  // where in the buffer the result is
    std::size_t first = 0;             // and its first element in the pattern
    const std::vector<std::byte>* wanted = nullptr;
    bool agrees = false;  // nobody knows its bits, but all ranks have the same
    std::unique_ptr<cut> blocks;
    std::vector<std::span<std::byte>> pieces;
    [[nodiscard]] cells& buffer() const noexcept { return out ? *out : *in; }
  };

  call& add(const char* collective, const tutti::call_options& how, style st, std::size_t in_count) {
    auto& c = *calls_.emplace_back(std::make_unique<call>());
    c.name = s_.name(collective, count_, c_.title, how.via);
    if (how.order == tutti::reduction_order::rank) c.name.note = "in rank order";
    c.how = st;
    c.in = std::make_unique<cells>(c_, in_count, c_.operand(st, rank_));
    c.count = count_;
    c.wanted = &c_.result(st, size_);
    return c;
  }
  /// Every other call is in place, not the same ones in every case. For each call on each rank: salts agree.
  void perhaps_apart(call& c, std::size_t room, place where = place::here) {
    const bool apart = (s_.salt() + count_) % 2 != 0;
    if (!apart || where == place::elsewhere) return;
    c.out = std::make_unique<cells>(c_, room, c_.operand(c.how, rank_));
    c.begin = 0;
  }

  [[nodiscard]] tutti::buffer part(cells& b, std::size_t begin, std::size_t count) const {
    return {b.at(begin), count, c_.bytes, c_.type};
  }
  [[nodiscard]] tutti::const_buffer all_of(cells& b) const { return {b.at(0), b.count(), c_.bytes, c_.type}; }

  template <class Args>
  Args args_of(call& c) {
    Args a{};
    a.in = all_of(*c.in);
    a.out = part(c.buffer(), c.begin, c.count);
    a.op = with_;
    return a;
  }
  template <class Args>
  void launch(const Args& a, const tutti::call_options& how) {
    ops_.push_back(untyped<World>::start_on(s_.world, {count_, c_.type, c_.bytes}, how, a));
  }

  /// start(issue, style) for each algorithm. Where operands are not taken in rank order, theirs are exact.
  template <class Args, class Start>
  void each_way(Start start) {
    using namespace tutti;
    const auto& ordered = algo::rank_ordered;
    const auto can = [&](algorithm a) { return s_.world.backend().template can<Args>(a, c_.bytes); };
    start(call_options{}, style::exact);
    for (const algorithm a : algo::supported_algorithms<Args>)
      if (can(a))
        start(call_options{.via = a}, std::ranges::find(ordered, a) != ordered.end() ? style::rough : style::exact);
    if (std::ranges::any_of(ordered, can)) start(call_options{.order = reduction_order::rank}, style::rough);
  }
  /// The same, and inexact sums in no known order.
  template <class Args, class Start>
  void each_way_to_all(Start start) {
    each_way<Args>([&](const tutti::call_options& how, style st) {
      start(how, st);
      if (st == style::rough || !c_.inexact) return;
      start(how, style::rough);
      calls_.back()->wanted = nullptr;
      calls_.back()->agrees = true;
    });
  }

  void start_all() {
    using namespace tutti;
    const auto n = static_cast<std::size_t>(size_), me = static_cast<std::size_t>(rank_);
    each_way_to_all<all_reduce_args>([&](const call_options& how, style st) {
      call& c = add("all_reduce", how, st, count_);
      perhaps_apart(c, count_);
      launch(args_of<all_reduce_args>(c), how);
    });
    each_way_to_all<all_reduce_coalesced_args>([&](const call_options& how, style st) {
      call& c = add("all_reduce_coalesced", how, st, count_);
      for (std::size_t at = 0, k = 0; at < count_ || k < 3; ++k) {
        const std::size_t some = k == 1 ? 0 : std::min(count_ - at, 2 * k + count_ / 3);
        c.pieces.push_back({c.in->at(at), some * c_.bytes});
        at += some;
      }
      constexpr auto item = [](const void* items, std::size_t i) noexcept {
        return static_cast<const std::span<std::byte>*>(items)[i];
      };
      launch(all_reduce_coalesced_args{{c.pieces.data(), c.pieces.size(), count_, c_.bytes, c_.type, item}, with_},
             how);
    });
    each_way<reduce_scatter_args>([&](const call_options& how, style st) {
      call& c = add("reduce_scatter", how, st, count_ * n);
      c.begin = c.first = me * count_;
      perhaps_apart(c, count_);
      launch(args_of<reduce_scatter_args>(c), how);
    });
    each_way<reduce_scatter_v_args>([&](const call_options& how, style st) {
      const std::uint64_t salt = s_.salt();
      auto blocks = std::make_unique<cut>(n, count_, salt, salt % 4 < 2);
      call& c = add("reduce_scatter_v", how, st, blocks->total);
      c.begin = c.first = blocks->begin(me);
      c.count = blocks->counts[me];
      perhaps_apart(c, c.count);
      c.blocks = std::move(blocks);
      auto a = args_of<reduce_scatter_v_args>(c);
      a.blocks = c.blocks->layout();
      launch(a, how);
    });
    each_way<reduce_args>([&](const call_options& how, style st) {
      call& c = add("reduce", how, st, count_);
      const int root = static_cast<int>(s_.salt() % n);
      perhaps_apart(c, count_, rank_ == root ? place::here : place::elsewhere);
      if (rank_ != root) c.wanted = &c_.operand(st, rank_);  // it stays as it is
      auto a = args_of<reduce_args>(c);
      if (rank_ != root) a.out = part(*c.in, 0, 0);
      a.root = root;
      launch(a, how);
    });
    each_way<scan_args>([&](const call_options& how, style st) {
      call& c = add("scan", how, st, count_);
      c.wanted = &c_.result(st, rank_ + 1);
      perhaps_apart(c, count_);
      launch(args_of<scan_args>(c), how);
    });
    each_way<exclusive_scan_args>([&](const call_options& how, style st) {
      call& c = add("exclusive_scan", how, st, count_);
      c.wanted = rank_ == 0 ? &c_.operand(st, rank_) : &c_.result(st, rank_);
      perhaps_apart(c, count_);
      launch(args_of<exclusive_scan_args>(c), how);
    });
  }

  void check(call& c) {
    expect(c.in->intact() && c.buffer().intact(), c.name, "something beside the buffers was written");
    if (c.wanted) {
      const std::size_t bad = c.buffer().mismatch(c.begin, c.count, *c.wanted, c.first);
      expect(bad == c.count, c.name,
             "element " + std::to_string(bad) + " is not what a fold of the operands gives" +
                 (c.out ? "" : ", in place") + (c.how == style::rough ? ", in rank order" : ""));
    }
    if (c.out)
      expect(c.in->mismatch(0, c.in->count(), c_.operand(c.how, rank_), 0) == c.in->count(), c.name,
             "the input was changed");
  }

  session<World>& s_;
  const reduction_case& c_;
  std::size_t count_;
  int rank_, size_;
  tutti::reduction with_;
  std::vector<std::unique_ptr<call>> calls_;
  std::vector<tutti::op> ops_;
};

/// Fewer elements than ranks, about as many as fill some registers, with and without a rest, and more than one round
/// in memory carries; now and then more than a slot of it, or a piece of a message, holds.
inline std::size_t count_of(const reduction_case& c, std::size_t turn) noexcept {
  constexpr std::size_t few[] = {7, 1, 3, 0}, some[] = {256, 64, 640, 192}, many[] = {5000, 9000, 4200, 20000};
  constexpr std::size_t more_than_a_slot = 300000;
  const std::size_t next = turn / 3 % 4, rest = turn % 5;
  if (turn % 27 == 17) return more_than_a_slot / c.bytes + rest;
  return turn % 3 == 0 ? few[next] : (turn % 3 == 1 ? some : many)[next] / c.bytes + rest;
}

/// Every reduction of every dtype through every collective and algorithm that has it: exact where any order gives the
/// same, bit for bit where operands are taken in rank order, and alike on all ranks elsewhere. One case in `stride`,
/// others in worlds of other sizes.
template <class World>
void check_every_reduction(session<World>& s, std::size_t stride) {
  const auto& all = reduction_cases();
  std::vector<std::uint64_t> digests;
  std::vector<which> names;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if ((k + s.size()) % stride != 0) continue;
    every_reduction<World>(s, all[k], count_of(all[k], (k + s.size()) / stride)).run(digests, names);
  }
  std::vector<std::uint64_t> everyone(digests.size() * s.size());
  s.world.all_gather(digests, everyone).wait();
  for (std::size_t i = 0; i < everyone.size(); ++i)
    expect(everyone[i] == digests[i % digests.size()], names[i % names.size()],
           "the bits differ from those of rank " + std::to_string(i / digests.size()));
}

}  // namespace conformance
