#include "replay.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "replay_plan.hpp"
#include "replay_reduction.hpp"
#include "table.hpp"

namespace bench {
namespace {

/// Buffers that are used again once the operation that had them has ended.
class buffer_pool {
 public:
  using block = std::unique_ptr<std::vector<std::byte>>;

  block take(std::size_t bytes) {
    const auto at = free_.lower_bound(bytes);
    if (at == free_.end()) return std::make_unique<std::vector<std::byte>>(bytes);
    return std::move(free_.extract(at).mapped());
  }
  void give(block b) {
    if (b) free_.emplace(b->size(), std::move(b));
  }

 private:
  std::multimap<std::size_t, block> free_;
};

/// A group whose calls take arguments that are known at run time only.
class recorded_group : public communicator {
 public:
  explicit recorded_group(communicator c) : communicator(std::move(c)) {}

  /// Issues a step; `in` and `out` are as long as elements() says.
  tutti::op issue(const replay_step& s, std::span<std::byte> in, std::span<std::byte> out) {
    const recorded_call& c = s.call;
    const auto from = [&](auto b) {
      b.data = in.data(), b.count = in.size() / c.element_bytes;
      return typed(b, c);
    };
    const auto to = [&](auto b) {
      b.data = out.data(), b.count = out.size() / c.element_bytes;
      return typed(b, c);
    };
    const auto reducing = [&]<class Args>(Args a) {
      a.in = from(a.in);
      a.out = to(a.out);
      static_cast<void>(set_reduction(a.op, c.type, *c.reduction, size()));
      if constexpr (requires { a.root; }) a.root = c.other;
      if constexpr (requires { a.blocks; }) a.blocks = s.blocks;
      return begin(s, a);
    };
    const auto moving = [&]<class Args>(Args a) {
      a.in = from(a.in);
      a.out = to(a.out);
      if constexpr (requires { a.root; }) a.root = c.other;
      return begin(s, a);
    };
    const auto in_blocks = [&]<class Args>(Args a) {
      const bool sees_all = c.other == rank();  // others know their own block only
      const std::size_t own = c.name.starts_with("gather") ? in.size() : out.size();
      if (c.name == "gather" || c.name == "scatter")
        a.blocks = tutti::layout::of_equal(own / c.element_bytes);
      else if (sees_all)
        a.blocks = s.blocks;
      return moving(a);
    };
    if (c.name == "barrier") return begin(s, tutti::barrier_args{});
    if (c.name == "all_reduce") return reducing(tutti::all_reduce_args{});
    if (c.name == "all_reduce_coalesced") return begin_coalesced(s, in);
    if (c.name == "reduce") return reducing(tutti::reduce_args{});
    if (c.name == "scan") return reducing(tutti::scan_args{});
    if (c.name == "exclusive_scan") return reducing(tutti::exclusive_scan_args{});
    if (c.name == "reduce_scatter") return reducing(tutti::reduce_scatter_args{});
    if (c.name == "reduce_scatter_v") return reducing(tutti::reduce_scatter_v_args{});
    if (c.name == "broadcast") return begin(s, tutti::broadcast_args{to(tutti::buffer{}), c.other});
    if (c.name == "all_gather") return moving(tutti::all_gather_args{});
    if (c.name == "all_gather_v") {
      tutti::all_gather_v_args a{};
      a.blocks = s.blocks;
      return moving(a);
    }
    if (c.name == "gather") return in_blocks(tutti::gather_args{});
    if (c.name == "gather_v") return in_blocks(tutti::gather_v_args{});
    if (c.name == "scatter") return in_blocks(tutti::scatter_args{});
    if (c.name == "scatter_v") return in_blocks(tutti::scatter_v_args{});
    if (c.name == "all_to_all") {
      tutti::all_to_all_args a{};
      a.in_blocks = a.out_blocks = tutti::layout::of_equal(c.count / static_cast<std::size_t>(size()));
      return moving(a);
    }
    if (c.name == "all_to_all_v") {
      tutti::all_to_all_v_args a{};
      a.in_blocks = s.blocks;
      a.out_blocks = s.received;
      return moving(a);
    }
    if (c.name == "send") return begin(s, tutti::send_args{from(tutti::const_buffer{}), c.other, c.tag});
    if (c.name == "recv") return begin(s, tutti::recv_args{to(tutti::buffer{}), c.other, c.tag});
    throw std::runtime_error("the recording cannot be replayed: it has a call " + c.name);
  }

  /// Returns the elements that go in and come out on this rank; of a call in place, all come out.
  [[nodiscard]] std::pair<std::size_t, std::size_t> elements(const replay_step& s) const {
    const recorded_call& c = s.call;
    const auto n = static_cast<std::size_t>(size()), me = static_cast<std::size_t>(rank());
    const bool root = c.other == rank();
    const auto sum = [](const std::vector<std::size_t>& v) {
      std::size_t all = 0;
      for (const std::size_t x : v) all += x;
      return all;
    };
    if (c.name == "barrier") return {0, 0};
    if (c.name == "broadcast" || c.name == "recv") return {0, c.count};
    if (c.name == "send" || c.name == "all_reduce_coalesced") return {c.count, 0};
    if (c.name == "reduce") return {c.count, root ? c.count : 0};
    if (c.name == "reduce_scatter") return {c.count, c.count / n};
    if (c.name == "reduce_scatter_v") return {c.count, s.blocks[me]};
    if (c.name == "all_gather") return {c.count / n, c.count};
    if (c.name == "all_gather_v") return {s.blocks[me], c.count};
    if (c.name == "gather") return root ? std::pair{c.count / n, c.count} : std::pair{c.count, std::size_t{0}};
    if (c.name == "gather_v") return {s.blocks[me], root ? sum(s.blocks) : 0};
    if (c.name == "scatter") return root ? std::pair{c.count, c.count / n} : std::pair{std::size_t{0}, c.count};
    if (c.name == "scatter_v") return {root ? sum(s.blocks) : 0, s.blocks[me]};
    if (c.name == "all_to_all_v") return {sum(s.blocks), sum(s.received)};
    return {c.count, c.count};
  }
  /// Returns true for calls that trainers make in place: a recording does not say which were.
  [[nodiscard]] bool in_place(const replay_step& s) const {
    return s.call.name == "all_reduce" || (s.call.name == "reduce" && s.call.other == rank());
  }

 private:
  template <class Buffer>
  static Buffer typed(Buffer b, const recorded_call& c) {
    b.element_bytes = static_cast<std::uint32_t>(c.element_bytes);
    b.type = c.type;
    return b;
  }
  template <class Args>
  tutti::op begin(const replay_step& s, Args a) {
    const recorded_call& c = s.call;
    const bool chooses = requires { a.via; };
    return start({c.count, c.type, c.element_bytes}, {.via = chooses ? c.via : tutti::algorithm::automatic},
                 std::source_location::current(), a);
  }
  tutti::op begin_coalesced(const replay_step& s, std::span<std::byte> all) {
    constexpr auto whole = [](const void* items, std::size_t) noexcept {
      return *static_cast<const std::span<std::byte>*>(items);
    };
    const recorded_call& c = s.call;
    lists_.push_back(std::make_unique<std::span<std::byte>>(all));  // the operation refers to it
    tutti::all_reduce_coalesced_args a{
        {lists_.back().get(), 1, c.count, static_cast<std::uint32_t>(c.element_bytes), c.type, whole}, {}};
    static_cast<void>(set_reduction(a.op, c.type, *c.reduction, size()));
    return begin(s, a);
  }

  std::vector<std::unique_ptr<std::span<std::byte>>> lists_;
};

/// Makes the world's groups, and connects their ranks.
std::vector<std::unique_ptr<recorded_group>> make_groups(communicator world, const replay_plan& plan) {
  std::vector<std::unique_ptr<recorded_group>> groups;
  const int me = world.rank();
  for (std::size_t g = 1; g < plan.groups.size(); ++g) {
    const auto& members = plan.groups[g];
    const auto at = std::ranges::find(members, me) - members.begin();
    const bool belongs = at < static_cast<std::ptrdiff_t>(members.size());
    auto part = world.split(belongs ? 0 : 1 + me, static_cast<int>(at));
    groups.push_back(belongs ? std::make_unique<recorded_group>(std::move(part)) : nullptr);
  }
  groups.insert(groups.begin(), std::make_unique<recorded_group>(std::move(world)));
  for (auto& g : groups)
    if (g) {
      std::vector<int> in(static_cast<std::size_t>(g->size())), out(in.size());
      g->all_to_all(in, out).wait();
    }
  return groups;
}

enum class gaps_between { left_out, kept };

/// The steps of this rank, made one after the other. Fills `took` with the time of each in microseconds.
class player {
 public:
  player(std::vector<std::unique_ptr<recorded_group>>& groups, const std::vector<replay_step>& steps, gaps_between how)
      : groups_(groups), steps_(steps), how_(how), flights_(steps.size()) {}

  void play(std::vector<double>& took) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const replay_step& s = steps_[i];
      for (const std::size_t j : s.ended) end(j, took[j]);
      if (how_ == gaps_between::kept && s.gap > 0) std::this_thread::sleep_for(std::chrono::nanoseconds{s.gap});
      issue(s, flights_[i]);
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) end(i, took[i]);
  }

 private:
  struct flight {
    tutti::clock::time_point issued;
    buffer_pool::block in, out;
    std::optional<tutti::op> operation;
  };

  void issue(const replay_step& s, flight& f) {
    recorded_group& group = *groups_[s.group];
    const auto [in, out] = group.elements(s);
    const std::size_t bytes = s.call.element_bytes;
    const bool in_place = group.in_place(s);
    if (!in_place) f.in = pool_.take(in * bytes);
    f.out = pool_.take(out * bytes);
    const std::span<std::byte> to = std::span{*f.out}.first(out * bytes);
    const std::span<std::byte> from = in_place ? to : std::span{*f.in}.first(in * bytes);
    f.issued = tutti::clock::now();
    f.operation = group.issue(s, from, to);
  }
  void end(std::size_t i, double& us) {
    flight& f = flights_[i];
    if (!f.operation) return;
    f.operation->wait();
    us = std::chrono::duration<double, std::micro>(tutti::clock::now() - f.issued).count();
    f.operation.reset();
    pool_.give(std::move(f.in));
    pool_.give(std::move(f.out));
  }

  std::vector<std::unique_ptr<recorded_group>>& groups_;
  const std::vector<replay_step>& steps_;
  gaps_between how_;
  std::vector<flight> flights_;
  buffer_pool pool_;
};

/// Times of calls of one kind.
struct replay_row {
  std::size_t calls = 0, timed = 0;  ///< `timed`: whose end is recorded
  double now = 0, recorded = 0;      ///< sums in microseconds
};

void print(const options& o, const replay_plan& plan, const std::vector<double>& took, double seconds) {
  std::map<std::tuple<std::string, std::size_t, std::string, std::string, std::size_t>, replay_row> rows;
  std::size_t calls = 0;
  double span = 0, gaps = 0;
  for (const auto& steps : plan.ranks) {
    std::int64_t between = 0, last = 0;
    for (const replay_step& s : steps) {
      const recorded_call& c = s.call;
      replay_row& row =
          rows[{c.name, c.bytes(), std::string(tutti::name(c.type)), tutti::name(c.via), plan.groups[s.group].size()}];
      ++row.calls;
      row.now += took[calls++];
      if (s.recorded() > 0) ++row.timed, row.recorded += static_cast<double>(s.recorded()) / 1e3;
      between += s.gap;
      last = (std::max)(last, c.ended);
    }
    if (steps.empty()) continue;
    span = (std::max)(span, static_cast<double>(last - steps.front().call.issued) / 1e9);
    gaps = (std::max)(gaps, static_cast<double>(between) / 1e9);
  }
  std::unique_ptr<std::ofstream> json;
  if (!o.json.empty() && !*(json = std::make_unique<std::ofstream>(o.json)))
    throw std::runtime_error("cannot write " + o.json);
  std::printf("# tutti-bench %d.%d.%d\n# Replay of %s: %zu ranks, %zu calls of all ranks together\n",
              TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, o.replay.c_str(), plan.ranks.size(),
              calls);
  for (const auto& [why, n] : plan.left_out) std::printf("# left out: %d %s\n", n, why.c_str());
  if (plan.as_bytes != 0)
    std::printf("# %zu calls reduce by functions, or types that only the program has: shown as uint8\n", plan.as_bytes);
  std::printf("#\n# %20s  %12s  %11s  %18s  %5s  %7s  %10s  %10s\n# %20s  %12s  %11s  %18s  %5s  %7s  %10s  %10s\n",
              "call", "size", "type", "algorithm", "ranks", "calls", "now", "recorded", "", "(B)", "", "", "", "",
              "(us)", "(us)");
  for (const auto& [kind, row] : rows) {
    const auto& [call, bytes, type, algorithm, ranks] = kind;
    const double now = row.now / static_cast<double>(row.calls);
    const double recorded = row.timed ? row.recorded / static_cast<double>(row.timed) : 0;
    std::printf("  %20s  %12zu  %11s  %18s  %5zu  %7zu  %10s  %10s\n", call.c_str(), bytes, type.c_str(),
                algorithm.c_str(), ranks, row.calls, fit(now, 10).c_str(), row.timed ? fit(recorded, 10).c_str() : "-");
    if (json) {
      nlohmann::json line{{"call", call},   {"bytes", bytes},     {"type", type}, {"algorithm", algorithm},
                          {"ranks", ranks}, {"calls", row.calls}, {"us", now}};
      line["recorded_us"] = row.timed ? nlohmann::json(recorded) : nlohmann::json(nullptr);
      *json << line << '\n';
    }
  }
  std::printf("#\n# All calls: %g s now, %g s recorded%s\n", seconds, o.gaps ? span : (std::max)(span - gaps, 0.0),
              o.gaps ? " (with the time between calls)" : " (without the time between calls: --gaps)");
}

}  // namespace

void replay(communicator world, const options& o, const std::vector<recording>& all) {
  const int me = world.rank(), size = world.size();
  if (size != all.front().size)
    throw tutti::usage_error("--replay " + o.replay + " is a recording of " + std::to_string(all.front().size) +
                             " ranks, but this world has " + std::to_string(size) + ": start as many");
  const replay_plan plan = plan_of(all, can_reduce);
  auto groups = make_groups(std::move(world), plan);
  recorded_group& everybody = *groups.front();
  const auto& steps = plan.ranks[static_cast<std::size_t>(me)];
  std::vector<double> took(steps.size());
  player one{groups, steps, o.gaps ? gaps_between::kept : gaps_between::left_out};
  everybody.barrier().wait();
  const auto start = tutti::clock::now();
  one.play(took);
  const double own = std::chrono::duration<double>(tutti::clock::now() - start).count();
  const double seconds = everybody.all_reduce(own, tutti::max).wait();

  std::vector<std::size_t> counts;
  std::size_t sum = 0;
  for (const auto& of_rank : plan.ranks) sum += counts.emplace_back(of_rank.size());
  std::vector<double> of_all(me == 0 ? sum : 0);
  everybody.gather_v(took, of_all, counts, 0).wait();
  if (me == 0) print(o, plan, of_all, seconds);
}

}  // namespace bench
