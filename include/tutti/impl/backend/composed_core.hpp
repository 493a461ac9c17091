#pragma once
#include <concepts>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <tutti/algo/bring_all.hpp>
#include <tutti/algo/collectives.hpp>
#include <tutti/algo/decision.hpp>
#include <tutti/algo/dispatch.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/message/barrier.hpp>
#include <tutti/algo/message/p2p.hpp>
#include <tutti/algo/message/prepared_operand.hpp>
#include <tutti/algo/message/tree.hpp>
#include <tutti/algo/mismatch/call_chain.hpp>
#include <tutti/algo/mismatch/log_entry.hpp>
#include <tutti/algo/mismatch/mismatch_report.hpp>
#include <tutti/algo/mismatch/unnoticed.hpp>
#include <tutti/algo/selection/choose.hpp>
#include <tutti/algo/selection/supported.hpp>
#include <tutti/algo/selection/table.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/inline_path.hpp>
#include <tutti/algo/shm/registered_use.hpp>
#include <tutti/algo/shm/small.hpp>
#include <tutti/backend/composed.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::detail {

/// Implementation of composed: starts the algorithms of algo/ over a transport, for all ranks of a world or for a group
/// of them. Called under the engine's lock. Does not move, as routines keep pointers to its state.
template <class T>
class composed_core {
  static_assert(transport<T>);

 public:
  /// Makes the backend of all ranks of the transport.
  explicit composed_core(std::shared_ptr<driver<T>> d) : driver_(std::move(d)) {
    state_.members = {0, driver_->link().rank(), driver_->link().size(), {}};
    find_topology();
  }
  /// Makes the backend of a group of them.
  composed_core(std::shared_ptr<driver<T>> d, group g) : driver_(std::move(d)) {
    driver_->use_context(g.context);
    state_.members = std::move(g);
    find_topology();
  }
  composed_core(const composed_core&) = delete;
  composed_core& operator=(const composed_core&) = delete;
  /// Retires the shared memory of a group. That of a world is freed with the world.
  ~composed_core() {
    auto guard = driver_->engine().lock();
    if (failure().ok() && !driver_->engine().inherited()) algo::log_unnoticed(state_.shm_state, state_.members);
    if constexpr (mapped_transport<T>) driver_->link().forget(state_.shm_state);
    if (state_.members.context == 0) {
      const algo::call_chain all = calls();
      driver_->link().note_end(all.calls, state_.shm_state.is_compared() ? 0 : all.hash);
      return;
    }
    driver_->retire(state_.shm_state);
    if (state_.memory) state_.memory->for_each_shm_group([this](algo::shm_group& shm) { driver_->retire(shm); });
  }

  [[nodiscard]] int rank() const noexcept { return state_.members.rank; }
  [[nodiscard]] int size() const noexcept { return state_.members.size; }
  /// Returns this rank's number in the world, by which failures name it.
  [[nodiscard]] int world_rank() const noexcept { return driver_->link().rank(); }
  [[nodiscard]] const group& members() const noexcept { return state_.members; }
  [[nodiscard]] const std::shared_ptr<driver<T>>& shared_driver() const noexcept { return driver_; }
  [[nodiscard]] const algo::shm_group& shm_state() const noexcept { return state_.shm_state; }
  [[nodiscard]] status failure() const noexcept { return driver_->link().failure(); }
  [[nodiscard]] std::string describe(int world_rank) const { return driver_->link().describe(world_rank); }
  void abort(status why) noexcept { driver_->link().abort(why); }

  /// Fast path: does inside the issuing call as much of it as needs no waiting, if one round in shared memory carries
  /// it. Unless that completes the call, start() must be called with the decision. Does nothing while other operations
  /// are in flight, as they need this rank to drive them, nor for every 64th call.
  template <class Args>
    requires(mapped_transport<T>)
  algo::decision begin(const Args& a, algo::when_posted meanwhile) noexcept {
    algo::decision d;
    algo::shm_group& shm = state_.shm_state;
    if (size() == 1 || links() != algo::connectivity::memory || driver_->in_flight().front() != nullptr) return d;
    if (state_.sequence % 64 == 0 || !failure().ok() || !algo::is_plain(a)) return d;
    d.via = chosen(a);
    if (!algo::is_direct<Args>(d.via) || !algo::may_begin(driver_->link(), shm, a, rank(), size())) return d;
    if (shm.is_clear(state_.spin_limit)) d.so_far = algo::begin<T>(count_call(a), shm, a, state_.spin_limit, meanwhile);
    return d;
  }

  /// Starts an operation, or continues what begin() has begun, whose decision is `d`.
  template <class Args>
  void start(const Args& a, op_state& s, algo::decision d) noexcept {
    if (d.via == algorithm::automatic) d.via = chosen(a);
    if constexpr (registering_transport<T> && algo::registered_use::has_registrable<Args>)
      if (auto* r = driver_->link().registrations(); r && !r->empty() && size() > 1) return start_on(*r, d, a, s);
    start_by(d, a, s);
  }

  /// Returns the algorithm that start() takes for a collective: the one that was asked for, else the table's, else the
  /// cheapest by algo/selection/choose.hpp; `automatic` if the collective has a single implementation.
  template <class Args>
  [[nodiscard]] algorithm chosen(const Args& a) const noexcept {
    if constexpr (requires { a.via; }) {
      if (a.via != algorithm::automatic) return a.via;
      const algo::problem here = algo::traits<Args>::size(a, problem(0, 1));
      if (driver_->tuning().size() == 0) return algo::select<Args>(here);
      const algorithm tuned = driver_->tuning().template choose<Args>(here, algorithm::automatic);
      return tuned != algorithm::automatic ? tuned : algo::select<Args>(here);
    }
    return algorithm::automatic;
  }

  /// Returns the connectivity of this group's ranks.
  [[nodiscard]] algo::connectivity links() const noexcept { return state_.links; }

  /// Returns true if every all_reduce with `automatic` folds all operands of an element in one step: the ranks share
  /// memory, and there is no table of algorithms.
  [[nodiscard]] bool folds_at_once() const noexcept {
    return links() == algo::connectivity::memory && driver_->tuning().size() == 0;
  }

  /// Returns true if this collective can take this algorithm here. start() must not be called with another one.
  template <class Args>
  [[nodiscard]] bool can(algorithm via, std::size_t element_bytes) const noexcept {
    return algo::is_supported<Args>(via, problem(0, element_bytes));
  }
  template <class Args>
  [[nodiscard]] std::string refusal(algorithm via, std::size_t element_bytes) const {
    return algo::refusal<Args>(via, problem(0, element_bytes));
  }

  /// Returns the explanation of an errc::mismatch: the calls that do not match; empty if they are not known.
  [[nodiscard]] std::string explain_mismatch(const op_state& s) const {
    const int peer = s.result.peer;
    return algo::explain_mismatch(s, state_.shm_state, state_.members,
                                  peer < 0               ? "a rank"
                                  : peer == world_rank() ? "this rank"
                                                         : describe(peer) + ": it");
  }

  /// Returns the world rank that caused an errc::mismatch: the one that differs from most of its group, or that sent a
  /// user's message of another length; -1 if the world has more than two ranks and the calls of the others are unknown.
  [[nodiscard]] int outlier(const op_state& s) const noexcept {
    const int odd = algo::mismatch_report::find(state_.shm_state, state_.members, s.result.peer).outlier;
    if (odd >= 0) return world(odd);
    return driver_->link().size() > 2 && algo::is_of_calls(s.result) ? -1 : s.result.peer;
  }

  /// Returns a digest of the collectives that this rank has called in the group, while no operation is in flight.
  [[nodiscard]] algo::call_chain calls() const noexcept { return {state_.sequence, state_.shm_state.chain()}; }

  /// Returns true while an operation that `owner` issued is in flight.
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept {
    for (const op_state* s = driver_->in_flight().front(); s; s = s->next)
      if (s->owner == &owner) return true;
    return false;
  }

 private:
  /// Starts an operation of several ranks in a world with registered memory. Small calls are staged in any case.
  template <class Args>
  [[gnu::noinline]] void start_on(shm_registrations& all, algo::decision d, Args a, op_state& s) noexcept try {
    if (links() != algo::connectivity::messages && !d.is_begun() && !is_small(a, d)) use_.emplace(all, a, rank());
    start_by(d, a, s);
    use_.reset();
  } catch (const std::bad_alloc&) {
    s.complete({errc::out_of_resources});
  }

  void start_by(algo::decision d, const barrier_args& a, op_state& s) noexcept {
    if (alone(s)) return finish(s);
    if (run_small(s, a, d)) return;
    state_.shm_state.remember(algo::call_of(state_.sequence + 1, a), algorithm::automatic);
    run(s, a, d, [&](auto l, const barrier_args&) {
      if constexpr (on_machines)
        if (state_.memory) return algo::hierarchical_barrier<T>(l, *state_.memory);
      return algo::dissemination_barrier(l);
    });
  }

  void start_by(algo::decision d, const all_reduce_args& a, op_state& s) noexcept {
    if (!a.external.empty() && (a.op.prepare || size() == 1 || d.via != algorithm::direct || algo::is_unmapped(a)))
      return start_by(d, algo::bring_all(a), s);
    if (a.op.prepare) return start_by(d, algo::prepare_into_output(a), s);
    if (alone(s)) return take_own(a, s);
    if (!a.external.empty()) algo::bring_for_others(a, rank(), size());
    if (!run_small(s, a, d)) run(s, a, d, way_of(a, d));
  }

  void start_by(algo::decision d, const broadcast_args& a, op_state& s) noexcept {
    if (alone(s)) return finish(s);
    if (!run_small(s, a, d)) run(s, a, d, way_of(a, d));
  }

  void start_by(algo::decision d, const broadcast_sized_args& a, op_state& s) noexcept {
    if (alone(s)) return finish(s);
    run(s, a, d, [](auto l, const broadcast_sized_args& call) { return algo::tree_broadcast_sized(l, call); });
  }

  void start_by(algo::decision d, const reduce_scatter_args& a, op_state& s) noexcept {
    if (alone(s)) {
      if (a.op.prepare) return start_by(d, algo::prepare_into_output(a), s);
      return take_own(a, s);
    }
    if (!a.op.prepare && run_small(s, a, d)) return;
    run_prepared(s, a, d);
  }

  void start_by(algo::decision d, const all_gather_args& a, op_state& s) noexcept {
    if (alone(s)) {
      copy_bytes(a.out.data, a.in.data, a.out.bytes());
      return finish(s);
    }
    if (!run_small(s, a, d)) run(s, a, d, way_of(a, d));
  }

  template <class Args>
    requires requires(const Args& a, const algo::problem& s) { algo::traits<Args>::size(a, s); }
  void start_by(algo::decision d, const Args& a, op_state& s) noexcept {
    if constexpr (std::same_as<Args, all_reduce_coalesced_args>)
      if (a.op.prepare) return start_by(d, algo::prepare_in_place(a), s);
    if (size() != 1 && algo::is_plain(a) && run_small(s, a, d)) return;
    run_prepared(s, a, d);
  }

  void start_by(algo::decision, const send_args& a, op_state& s) noexcept {
    launch(numbered(s), [&] {
      return algo::send_one(driver_->link(), world(a.peer), user_tag(a.tag),
                            {static_cast<const std::byte*>(a.data.data), a.data.bytes()});
    });
  }
  void start_by(algo::decision, const recv_args& a, op_state& s) noexcept {
    launch(numbered(s), [&] {
      return algo::recv_one(driver_->link(), world(a.peer), user_tag(a.tag),
                            {static_cast<std::byte*>(a.data.data), a.data.bytes()});
    });
  }

  /// Receives from any rank of the group, whose number becomes the operation's value.
  void start_by(algo::decision, const recv_any_args& a, op_state& s) noexcept {
    launch(numbered(s), [&] {
      return algo::recv_any_one(driver_->link(), state_.members, user_tag(a.tag),
                                {static_cast<std::byte*>(a.data.data), a.data.bytes()}, s);
    });
  }

  struct state {
    group members;
    algo::shm_group shm_state;
    std::unique_ptr<algo::node_group> memory;  // for ranks on several nodes if some share one
    algo::connectivity links = algo::connectivity::messages;
    int machines = 1;
    bool even = false;       // all nodes have the same number of ranks
    int ranks_per_core = 1;  // ranks per core
    int spin_limit = 0;      // spin limit of begin()
    std::uint64_t sequence = 0;
    std::uint64_t messages = 0;  // not in `sequence`, which is in the tags: ranks send different numbers
  };

  static constexpr bool on_machines = mapped_transport<T> && requires(const T& link) { link.machine_of(0); };

  void find_topology() {
    if constexpr (on_machines) {
      auto map = algo::node_map::of(driver_->link(), members());
      state_.machines = map.nodes;
      state_.even = map.even;
      if (map.layered()) {
        state_.memory = std::make_unique<algo::node_group>(members(), std::move(map));
        state_.links = algo::connectivity::machines;
      }
    }
    if constexpr (mapped_transport<T>) {
      if (maps_all(driver_->link(), members())) state_.links = algo::connectivity::memory;
      driver_->link().ask_also(state_.shm_state);
    }
    if constexpr (requires(const T& link) { link.most_ranks_per_core(); })
      state_.ranks_per_core = driver_->link().most_ranks_per_core();
    if (driver_->link().ranks_per_core() <= 1) state_.spin_limit = 256;
  }

  [[nodiscard]] int world(int rank) const noexcept { return state_.members.world_rank(rank); }
  [[nodiscard]] std::uint64_t user_tag(std::uint32_t t) const noexcept {
    return tag::point_to_point(state_.members.context, t);
  }
  [[nodiscard]] algo::problem problem(std::size_t bytes, std::size_t element) const noexcept {
    return {links(), size(), bytes, element, state_.machines, state_.ranks_per_core, state_.even};
  }
  [[nodiscard]] bool alone(op_state&) const noexcept { return size() == 1 && failure().ok(); }
  /// Reduces the operand of a single rank.
  template <class Args>
  void take_own(const Args& a, op_state& s) noexcept {
    copy_bytes(a.out.data, a.in.data, a.out.bytes());
    if (a.op.kind == reduction_kind::mean_over) a.op.finish(a.out.data, a.out.count, 1, a.op.context.data());
    finish(s);
  }
  void finish(op_state& s) noexcept {
    s.info.sequence = ++state_.sequence;
    s.complete(status{});
  }

  /// Counts the call unless begin() has done so, and logs it for mismatch diagnosis. Returns its link.
  template <class Args>
  group_link<T> enter(op_state& s, const Args& a, algo::decision d) noexcept {
    const group_link<T> l = d.is_begun() ? link_of(a) : count_call(a);
    const algo::call_signature call = algo::call_of(state_.sequence, a);
    driver_->note_call(algo::noted(state_.members.context, call, d.via));
    if constexpr (!std::same_as<Args, barrier_args>)
      if (d.via != algorithm::direct) state_.shm_state.remember(call, d.via);
    s.info.sequence = state_.sequence;
    s.info.context = state_.members.context;
    s.info.via = d.via;
    return l;
  }
  // Inlined by force: a call would cost a small operation as much as ten of its checks.
  template <class Args>
  [[gnu::always_inline]] group_link<T> count_call(const Args& a) noexcept {
    ++state_.sequence;
    if (state_.members.context == 0) driver_->link().note_issue(state_.sequence);
    return link_of(a);
  }
  template <class Args>
  group_link<T> link_of(const Args& a) const noexcept {
    const std::uint64_t sequence = state_.sequence;
    return {driver_->link(), state_.members, sequence, algo::call_of(sequence, a).short_id()};
  }
  /// Returns the function (link, args) -> routine for the algorithm of a decision.
  template <class Args>
  auto way_of(const Args&, algo::decision d) noexcept {
    return [d, at = &state_, n = size()](auto l, const Args& call) {
      static_cast<void>(at);  // unused if nothing is mapped
      if constexpr (mapped_transport<T>)
        if (d.via == algorithm::direct && n > 1) return algo::run_shm(l, at->shm_state, call, d.so_far);
      if constexpr (on_machines && algo::has_algorithm<Args>(algorithm::hierarchical))
        if (d.via == algorithm::hierarchical) return algo::run_hierarchical(l, *at->memory, call);
      return algo::run_messages(l, call, d.via);
    };
  }
  template <class Args, class Way>
  void run(op_state& s, const Args& a, algo::decision d, Way way) noexcept {
    const group_link<T> l = enter(s, a, d);
    launch(s, [&] { return way(l, a); });
  }

  /// Returns true if one round in shared memory carries the call.
  template <class Args>
  [[nodiscard]] bool is_small(const Args& a, algo::decision d) const noexcept {
    if constexpr (requires { algo::is_small(a, 1); })
      return links() == algo::connectivity::memory && algo::is_small(a, size()) && algo::is_direct<Args>(d.via);
    return false;
  }
  /// Starts a collective by direct_small() if one round in shared memory carries it; else returns false.
  template <class Args>
  bool run_small(op_state& s, const Args& a, algo::decision d) noexcept {
    if constexpr (mapped_transport<T> && requires { algo::is_small(a, 1); }) {
      if (!is_small(a, d)) return false;
      const group_link<T> l = enter(s, a, d);
      launch(s, [&] { return algo::direct_small<T>(l, state_.shm_state, a, d.so_far); });
      return true;
    }
    return false;
  }

  /// Runs the collective, over a prepared copy of the input if the reduction prepares operands.
  template <class Args>
  void run_prepared(op_state& s, const Args& a, algo::decision d) noexcept {
    run(s, a, d, [way = way_of(a, d)](auto l, const Args& call) {
      if constexpr (requires { call.op, call.in; })
        if (call.op.prepare) return algo::over_prepared_operand(l, call, way);
      return way(l, call);
    });
  }

  op_state& numbered(op_state& message) noexcept { return message.info.sequence = ++state_.messages, message; }
  void launch(op_state& s, auto make) noexcept {
    if (const status f = driver_->link().failure(); !f.ok()) return s.complete(f);
    try {
      routine work = use_ && !use_->none() ? algo::with_registered(make(), std::move(*use_)) : make();
      driver_->enter(s);
      std::move(work).start(s);
      driver_->started();
    } catch (const std::bad_alloc&) {
      s.complete({errc::out_of_resources});
    }
  }

  std::shared_ptr<driver<T>> driver_;
  state state_;
  std::optional<algo::registered_use> use_;  // of the call that is being started
};

}  // namespace tutti::detail
