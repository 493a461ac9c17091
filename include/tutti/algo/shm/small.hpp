#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/decision.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/small_exchange.hpp>
#include <tutti/algo/shm/small_parts.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

namespace detail {

/// One rank's side of a small call: puts this rank's bytes into the inline payload of its flag, or into its slot, and
/// takes those of the others.
template <mapped_transport T, class Args>
class small_call {
 public:
  small_call(const shm_call<T>& call, shm_group& shm, const Args& a) noexcept
      : m_(call), b_(shm), a_(a), x_(exchange_of(a, call.rank(), call.size())) {
    inline_ = x_.bytes <= shm_group::payload_bytes;
    if constexpr (folds) inline_ = inline_ && element_of(a) % (2 * shm_group::payload_alignment) != 0;
  }
  [[nodiscard]] int first() const noexcept { return x_.first; }
  [[nodiscard]] int last() const noexcept { return x_.last; }
  [[nodiscard]] std::size_t bytes() const noexcept { return x_.bytes; }
  /// Returns the bytes of each slot to prefetch while it is written, 0 for none. In an all_reduce all ranks write
  /// equally much, so all is fetched; in other calls only slots of a few lines are.
  [[nodiscard]] std::size_t asked_for() const noexcept {
    return inline_ || (x_.bytes > few_lines && !std::same_as<Args, all_reduce_args>) ? 0 : x_.bytes;
  }
  void put(std::uint64_t step) const noexcept {
    if (x_.puts) put_part(a_, x_, b_, inline_ ? m_.inline_payload(m_.rank(), step) : m_.own_slot(x_.bytes));
  }
  /// Lists the places of a reduction's operands. Called while the others' data is on its way.
  [[nodiscard]] const void* const* operands([[maybe_unused]] std::uint64_t step) const {
    if constexpr (folds) return list_operands(a_, x_, m_, [&](int r) { return place(r, step); });
    return nullptr;
  }
  void take(std::uint64_t step, [[maybe_unused]] const void* const* operands) const {
    const auto of = [&](int r) { return place(r, step); };
    if constexpr (folds)
      fold_parts(a_, x_, m_, operands, of);
    else
      copy_parts(a_, x_, m_.rank(), of);
  }

 private:
  static constexpr bool folds = requires(const Args& a) { a.op; };
  [[nodiscard]] const std::byte* place(int r, std::uint64_t step) const noexcept {
    return inline_ ? m_.inline_payload(r, step) : m_.slot(r, step, x_.bytes);
  }

  const shm_call<T>& m_;
  shm_group& b_;
  const Args& a_;
  small_exchange x_;
  bool inline_;
};

}  // namespace detail

/// Posts a small call whose shm group is clear, and completes it if the others are seen within `spin_limit` polls.
/// Creating a coroutine would cost as much as their messages.
template <mapped_transport T, class Args>
progress begin_small(const group_link<T>& link, shm_group& shm, const Args& a, int spin_limit,
                     when_posted meanwhile) noexcept {
  const detail::shm_call<T> call{link, shm, a};
  const detail::small_call<T, Args> exchange{call, shm, a};
  exchange.put(call.next());
  const std::uint64_t step = call.post();
  shm.prefetch_flags();
  meanwhile(link.sequence(), algorithm::direct);
  if constexpr (requires { a.op; })
    if (calls_user(a.op.kind)) return progress::posted;  // the user's function may throw
  const auto* const operands = exchange.operands(step);
  if (!shm.test(exchange.first(), exchange.last(), spin_limit)) return progress::posted;
  exchange.take(step, operands);
  shm.timer().count(exchange.bytes());
  return progress::all;
}

/// Small call through memory that the ranks share, or the rest of one that begin_small() has posted. Reductions fold in
/// rank order. One round, in which each rank waits only for the ranks that it takes data from: in a scan for those
/// below, as root of a broadcast for none.
template <mapped_transport T, class Args>
routine direct_small(group_link<T> link, shm_group& shm, Args a, progress so_far = progress::nothing) {
  detail::shm_turn<T> turn{link, shm};
  const detail::shm_call<T> call = co_await turn.enter();
  if (so_far == progress::nothing) call.begin(a);
  const detail::small_call<T, Args> exchange{call, shm, a};
  if (so_far == progress::nothing) {
    co_await call.wait_all(shm.step());
    exchange.put(call.next());
    call.post();
  }
  const std::uint64_t step = shm.step();
  co_await call.wait_range(exchange.first(), exchange.last(), step, exchange.asked_for());
  exchange.take(step, exchange.operands(step));
  if (shm.choice_due(exchange.bytes())) co_await detail::choose_staging(call, shm);
}

/// Barrier on the shm group: each rank posts a step and reads the others' flags. One round.
template <mapped_transport T>
routine direct_barrier(group_link<T> link, shm_group& shm) {
  return direct_small(link, shm, barrier_args{});
}

}  // namespace tutti::algo
