#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/watch/record.hpp>

#include "recording.hpp"

namespace bench {

/// One call of a rank, as it is made again.
struct replay_step {
  recorded_call call;
  std::size_t group = 0;                      ///< index of replay_plan::groups
  std::vector<std::size_t> blocks, received;  ///< of a v-variant: its blocks, and for all_to_all_v those of `out`
  std::vector<std::size_t> ended;             ///< earlier steps that had ended when this one was issued
  std::int64_t gap = 0;                       ///< nanoseconds in which the program was in no call before this one

  [[nodiscard]] std::int64_t recorded() const { return call.ended - call.issued; }
};

/// The calls that all ranks of a recording have completed, as each rank makes them again.
struct replay_plan {
  std::vector<std::vector<int>> groups;         ///< world ranks; the world first
  std::vector<std::vector<replay_step>> ranks;  ///< in the order of issue
  std::map<std::string, int> left_out;          ///< calls that are not made again, by the reason
  std::size_t as_bytes = 0;                     ///< calls that reduce as many bytes by `bor` instead
};

namespace detail {

/// Turns the calls whose reductions cannot be made into those that reduce as many bytes by `bor`: what is sent, and in
/// which steps, is the same. Returns their number.
template <class CanReduce>
std::size_t reduce_as_bytes(std::vector<recording>& all, CanReduce can_reduce) {
  std::size_t changed = 0;
  for (recording& r : all)
    for (recorded_call& c : r.calls) {
      if (!c.reduction || can_reduce(c.type, *c.reduction)) continue;
      c.count *= c.element_bytes;
      c.element_bytes = 1;
      c.type = tutti::dtype::u8;
      c.reduction = tutti::reduction_kind::bor;
      if (c.completed) ++changed;
    }
  return changed;
}

/// Maker of a replay_plan.
class planner {
 public:
  using group_key = std::pair<int, std::vector<int>>;  // groups without common ranks may have one context

  explicit planner(const std::vector<recording>& all) : all_(all) { plan_.ranks.resize(all.size()); }

  replay_plan make() {
    name_groups();
    for (const recording& r : all_)
      for (const recorded_call& c : r.calls) sort_in(r, c);
    if (!refused_.empty()) {
      std::string why;
      for (const auto& [what, n] : refused_) why += (why.empty() ? "" : "; ") + what + " (" + std::to_string(n) + ")";
      throw std::runtime_error("the recording cannot be replayed: " + why);
    }
    for (auto& [where, calls] : collectives_) take_collective(where.first, where.second, calls);
    for (auto& [where, both] : messages_) take_messages(where, both);
    for (auto& steps : plan_.ranks) order(steps);
    return std::move(plan_);
  }

 private:
  struct member_call {
    std::size_t rank = 0;
    const recorded_call* call = nullptr;
  };
  struct both_ends {
    std::vector<const recorded_call*> sent, received;
  };
  using message_key = std::tuple<std::size_t, int, int, std::uint32_t>;  // group, from, to, tag

  void name_groups() {
    for (const recording& r : all_)
      for (const auto& [context, members] : r.groups)
        if (!members.empty()) groups_.emplace(group_key{context, members}, 0);
    for (auto& [key, index] : groups_) {
      index = plan_.groups.size();
      plan_.groups.push_back(key.second);
    }
  }

  void sort_in(const recording& r, const recorded_call& c) {
    if (c.name == "split" || c.name == "close") return leave_out(c.name + ": groups are made before");
    if (!c.completed) return leave_out("calls that had not ended");
    if (c.name == "recv_any") return refuse("recv_any, whose sender is not recorded");
    if (c.name == "operation") return refuse("a call whose name is not recorded");
    const auto members = r.groups.find(c.context);
    if (members == r.groups.end()) return refuse("calls of a group whose members are not recorded");
    constexpr std::string_view with_other[] = {"broadcast", "reduce",    "gather", "gather_v",
                                               "scatter",   "scatter_v", "send",   "recv"};
    const int size = static_cast<int>(members->second.size());
    if (std::ranges::find(with_other, c.name) != std::end(with_other) && (c.other < 0 || c.other >= size))
      return refuse(c.name + " whose root or peer is not recorded");
    const std::size_t group = groups_.at({c.context, members->second});
    const auto me = std::ranges::find(members->second, r.rank) - members->second.begin();
    if (c.is_message()) {
      const bool sends = c.name == "send";
      const int here = static_cast<int>(me);
      both_ends& both = messages_[{group, sends ? here : c.other, sends ? c.other : here, c.tag}];
      (sends ? both.sent : both.received).push_back(&c);
      return;
    }
    auto& calls = collectives_[{group, c.sequence}];
    calls.resize(members->second.size());
    calls[static_cast<std::size_t>(me)] = {static_cast<std::size_t>(r.rank), &c};
  }

  void take_collective(std::size_t group, std::uint64_t sequence, const std::vector<member_call>& calls) {
    for (const member_call& m : calls)
      if (!m.call) return leave_out("calls that not all ranks of the group have recorded");
    const recorded_call& first = *calls.front().call;
    const auto kind = tutti::watch::call_kind::of(first.name);
    const bool alike = std::ranges::any_of(calls, [&](auto& m) { return kind.has_equal_counts(m.call->type); });
    for (const member_call& m : calls)
      if (m.call->name != first.name || m.call->reduction != first.reduction || m.call->other != first.other ||
          (alike && (m.call->count != first.count || m.call->type != first.type)))
        throw std::runtime_error("the recording cannot be replayed: as #" + std::to_string(sequence) +
                                 " of their group, rank " + std::to_string(calls.front().rank) + " has called " +
                                 first.name + " of " + std::to_string(first.count) + " and rank " +
                                 std::to_string(m.rank) + " " + m.call->name + " of " + std::to_string(m.call->count));
    for (std::size_t r = 0; r < calls.size(); ++r) {
      replay_step s{*calls[r].call, group, {}, {}, {}, 0};
      if (first.name == "broadcast") {  // of a text, only the root knew the length
        const recorded_call& root = *calls.at(static_cast<std::size_t>(first.other)).call;
        std::tie(s.call.count, s.call.type, s.call.element_bytes) = std::tie(root.count, root.type, root.element_bytes);
      }
      if (first.name.ends_with("_v")) cut(s, calls, r);
      plan_.ranks[calls[r].rank].push_back(std::move(s));
    }
  }
  /// Sets the blocks of a v-variant: what the members of a gather_v or scatter_v have; else equal ones.
  void cut(replay_step& s, const std::vector<member_call>& calls, std::size_t me) {
    const std::size_t n = calls.size();
    const auto count = [&](std::size_t r) { return calls[r].call->count; };
    const auto share = [&](std::size_t all, std::size_t r) { return all * (r + 1) / n - all * r / n; };
    if (s.call.name == "gather_v" || s.call.name == "scatter_v") {
      const auto root = static_cast<std::size_t>(s.call.other);
      std::size_t others = 0;
      for (std::size_t r = 0; r < n; ++r) s.blocks.push_back(r == root ? 0 : count(r)), others += s.blocks.back();
      s.blocks[root] = (std::max)(count(root), others) - others;
      if (me == root) s.call.count = others + s.blocks[root];
      return;
    }
    if (me == 0) leave_out("lengths of the blocks of " + s.call.name + ", which are not recorded: equal ones are used");
    if (s.call.name == "all_to_all_v") {
      for (std::size_t r = 0; r < n; ++r) {
        s.blocks.push_back(share(count(me), r));
        s.received.push_back(share(count(r), me));
      }
      return;
    }
    for (std::size_t r = 0; r < n; ++r) s.call.count = (std::min)(s.call.count, count(r));  // buffers may be longer
    for (std::size_t r = 0; r < n; ++r) s.blocks.push_back(share(s.call.count, r));
  }

  void take_messages(const message_key& where, const both_ends& both) {
    const auto& [group, from, to, tag] = where;
    const auto rank = [&, g = group](int r) { return plan_.groups[g].at(static_cast<std::size_t>(r)); };
    const auto sender = static_cast<std::size_t>(rank(from)), receiver = static_cast<std::size_t>(rank(to));
    const std::size_t n = (std::min)(both.sent.size(), both.received.size());
    const bool whole = all_[sender].from_start && all_[receiver].from_start;
    if (!whole && both.sent.size() != both.received.size())
      throw std::runtime_error("the recording cannot be replayed: of the messages from rank " + std::to_string(sender) +
                               " to rank " + std::to_string(receiver) + ", one has recorded " +
                               std::to_string(both.sent.size()) + ", the other " +
                               std::to_string(both.received.size()) + ": earlier ones were overwritten");
    for (std::size_t i = 0; i < n; ++i) {
      plan_.ranks[sender].push_back({*both.sent[i], group, {}, {}, {}, 0});
      plan_.ranks[receiver].push_back({*both.received[i], group, {}, {}, {}, 0});
    }
    for (std::size_t i = n; i < (std::max)(both.sent.size(), both.received.size()); ++i)
      leave_out("messages of which only one end has completed");
  }

  /// Sorts the steps of a rank by their issue, and finds what each waits for.
  static void order(std::vector<replay_step>& steps) {
    std::ranges::sort(steps, {}, [](const replay_step& s) { return s.call.id; });
    std::vector<std::size_t> in_flight;
    std::int64_t busy_until = steps.empty() ? 0 : steps.front().call.issued;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      replay_step& s = steps[i];
      std::erase_if(in_flight, [&](std::size_t j) {
        if (steps[j].call.ended > s.call.issued) return false;
        s.ended.push_back(j);
        busy_until = (std::max)(busy_until, steps[j].call.ended);
        return true;
      });
      s.gap = (std::max)(s.call.issued - busy_until, std::int64_t{0});
      busy_until = (std::max)(busy_until, s.call.issued);
      in_flight.push_back(i);
    }
  }

  void leave_out(const std::string& what) { ++plan_.left_out[what]; }
  void refuse(const std::string& what) { ++refused_[what]; }

  const std::vector<recording>& all_;
  replay_plan plan_;
  std::map<group_key, std::size_t> groups_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<member_call>> collectives_;
  std::map<message_key, both_ends> messages_;
  std::map<std::string, int> refused_;
};

}  // namespace detail

/// Returns what the ranks of a recording call again. Takes the calls that all members of a group have completed and
/// still have in their recordings; a rank waits for a call before it issues one that it had issued after the end of
/// that. `can_reduce(type, kind)` tells which reductions there are; others reduce bytes. Throws std::runtime_error that
/// names the calls which cannot be made again.
template <class CanReduce>
replay_plan plan_of(std::vector<recording> all, CanReduce can_reduce) {
  const std::size_t as_bytes = detail::reduce_as_bytes(all, can_reduce);
  replay_plan plan = detail::planner{all}.make();
  plan.as_bytes = as_bytes;
  return plan;
}

}  // namespace bench
