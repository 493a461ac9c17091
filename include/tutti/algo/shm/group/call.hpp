#pragma once
#include <tutti/config.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <tutti/algo/collectives.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo::detail {

/// One operation's view of its shm group, valid while the operation has its turn. Refers to the operation's link.
template <mapped_transport T>
class shm_call {
 public:
  shm_call(const group_link<T>& l, shm_group& shm) noexcept : link_(&l), group_(shm) {}
  template <class Args>
  shm_call(const group_link<T>& l, shm_group& shm, const Args& call) noexcept : shm_call(l, shm) {
    begin(call);
  }
  template <class Args>
  void begin(const Args& call) const noexcept {
    group_.begin(call_of(link_->sequence(), call));
  }

  [[nodiscard]] T& link() const noexcept { return link_->link(); }
  [[nodiscard]] int size() const noexcept { return link_->size(); }
  [[nodiscard]] int rank() const noexcept { return link_->rank(); }
  /// Returns the slot in which rank `r` has staged `bytes` bytes for `step`, to be read once it has posted that step.
  [[nodiscard]] const std::byte* slot(int r, std::uint64_t step,
                                      std::size_t bytes = shm_group::slot_bytes) const noexcept {
    return group_.slot(r, step, bytes);
  }
  /// Returns this rank's slot of the next step, to be written. All ranks must have posted the current step, so that
  /// they have read what lay there.
  [[nodiscard]] std::byte* own_slot(std::size_t bytes = shm_group::slot_bytes) const noexcept {
    return group_.own_slot(bytes);
  }
  /// Waits until all ranks have posted the current step, and returns this rank's slot of the next one.
  auto free_slot(std::size_t bytes = shm_group::slot_bytes) const noexcept {
    struct awaiter {
      shm_group::posted_by all;
      shm_group& group;
      std::size_t bytes;
      [[nodiscard]] bool await_ready() const noexcept { return all.await_ready(); }
      void await_suspend(std::coroutine_handle<routine::promise_type> h) noexcept { all.await_suspend(h); }
      [[nodiscard]] std::byte* await_resume() const noexcept { return group.own_slot(bytes); }
    };
    return awaiter{shm_group::posted_by{group_, link_->link(), 0, size(), group_.step()}, group_, bytes};
  }
  [[nodiscard]] std::byte* inline_payload(int r, std::uint64_t step) const noexcept {
    return group_.inline_payload(r, step);
  }
  [[nodiscard]] std::uint64_t next() const noexcept { return group_.step() + 1; }

  /// Return conditions that all ranks, one rank, or a range of ranks have posted `step`. `bytes` of their slots will be
  /// read.
  auto wait_all(std::uint64_t step, std::size_t bytes = 0) const noexcept { return wait_range(0, size(), step, bytes); }
  auto wait_rank(int r, std::uint64_t step, std::size_t bytes = 0) const noexcept {
    return wait_range(r, r + 1, step, bytes);
  }
  auto wait_range(int first, int last, std::uint64_t step, std::size_t bytes = 0) const noexcept {
    return shm_group::posted_by{group_, link_->link(), first, last, step, bytes};
  }
  /// Returns a condition that never holds, to wait on until another rank's failure ends the operation.
  auto failure() const noexcept { return wait_all(shm_group::no_offset); }
  auto refuse(status why) const noexcept { return link_->refuse(why); }
  std::uint64_t post() const noexcept { return group_.post(link_->link()); }
  std::uint64_t post(shm_group::buffer_descriptor n) const noexcept { return group_.post(link_->link(), n); }

  [[nodiscard]] std::uint64_t place(const void* p, std::size_t bytes) const noexcept {
    return link_->link().locate(p, bytes).value_or(shm_group::no_offset);
  }
  /// Returns the address here of `bytes` bytes at the offset that rank `r` has described; null if that is not its
  /// memory.
  [[nodiscard]] std::byte* map(int r, std::uint64_t where, std::size_t bytes) const noexcept {
    return where == shm_group::no_offset ? nullptr
                                         : link_->link().resolve(link_->members().world_rank(r), where, bytes);
  }
  /// Lists `where(r)` for every rank, as the operands of a fold.
  template <class Place>
  const void* const* from_all(Place where) const {
    auto& list = group_.room().operands;
    list.clear();
    for (int r = 0; r < size(); ++r) list.push_back(where(r));
    return list.data();
  }
  /// Does the same with this rank's operand at `own`: its copy in the slot is in the others' caches by now.
  template <class Place>
  const void* const* from_others(const void* own, Place where) const {
    return from_all([&](int r) -> const void* { return r == rank() ? own : where(r); });
  }
  /// Returns the pid of rank `r` for cross-memory attach; 0 if that is not possible.
  [[nodiscard]] int process_of(int r) const noexcept {
    return link_->link().process_of(link_->members().world_rank(r));
  }
  /// Returns true if every rank has described an `in` buffer with `step`.
  [[nodiscard]] bool all_described(std::uint64_t step) const noexcept {
    for (int r = 0; r < size(); ++r)
      if (group_.descriptor_of(r, step).in == shm_group::no_offset) return false;
    return true;
  }
  /// Maps the buffers of `bytes` bytes that all ranks have described with `step`. Returns false if one cannot be
  /// mapped.
  bool map_all(std::uint64_t step, std::uint64_t shm_group::buffer_descriptor::* which, std::size_t bytes,
               std::vector<std::byte*>& into) const {
    into.clear();
    for (int r = 0; r < size(); ++r) {
      std::byte* p = map(r, group_.descriptor_of(r, step).*which, bytes);
      if (!p) return false;
      into.push_back(p);
    }
    return true;
  }

 private:
  const group_link<T>* link_;  // a pointer: a copy would be read back before its stores have completed
  shm_group& group_;
};

/// Turn of one operation in its shm group. Operations take turns in the order in which these are made; the destructor
/// lets the next one in.
template <mapped_transport T>
class shm_turn {
 public:
  shm_turn(const group_link<T>& l, shm_group& shm) noexcept : link_(&l), group_(shm), ticket_(shm, l.link()) {}

  /// Returns an awaitable of the turn, whose result is the operation's view of the group. The group's first call
  /// allocates its memory meanwhile, which may throw std::bad_alloc.
  auto enter() noexcept {
    struct awaiter {
      shm_turn& turn;
      [[nodiscard]] bool await_ready() const noexcept { return turn.group_.is_open() && turn.ticket_.await_ready(); }
      bool await_suspend(std::coroutine_handle<routine::promise_type> h) const {
        if (!turn.group_.is_open()) {
          turn.opening_.emplace(turn.open());
          return turn.first_call().await_suspend(h);
        }
        turn.ticket_.await_suspend(h);
        return true;
      }
      shm_call<T> await_resume() const {
        if (turn.opening_) turn.first_call().await_resume();
        return {*turn.link_, turn.group_};
      }
    };
    return awaiter{*this};
  }

 private:
  routine open() {
    co_await ticket_;
    if (!group_.is_open()) co_await group_.open(*link_);
  }
  auto first_call() noexcept { return std::move(*opening_).operator co_await(); }

  const group_link<T>* link_;
  shm_group& group_;
  shm_group::ticket ticket_;
  std::optional<routine> opening_;
};

}  // namespace tutti::algo::detail
