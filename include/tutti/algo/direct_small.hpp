#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/block.hpp>
#include <tutti/algo/board.hpp>
#include <tutti/algo/direct.hpp>
#include <tutti/algo/meeting.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>

namespace tutti::algo {

// What one meeting carries: each rank puts its bytes beside its step, or into its slot, and takes those of the others.

constexpr bool is_small(const barrier_args&, int) noexcept { return true; }
inline bool is_small(const all_reduce_args& a, int ranks) noexcept {
  return is_unmapped(a) && detail::one_shot_pays(a.out.bytes(), ranks);
}
inline bool is_small(const broadcast_args& a, int) noexcept { return a.data.bytes() < worth_mapping; }
inline bool is_small(const all_gather_args& a, int) noexcept { return a.out.bytes() < worth_mapping; }
inline bool is_small(const reduce_scatter_args& a, int) noexcept { return a.in.bytes() < worth_mapping; }

namespace detail {

inline std::size_t put_bytes(const barrier_args&) noexcept { return 0; }
inline std::size_t put_bytes(const broadcast_args& a) noexcept { return a.data.bytes(); }
template <class Args>
std::size_t put_bytes(const Args& a) noexcept {
  return a.in.bytes();
}

/// The call of one rank.
template <mapped_transport T, class Args>
class small_call {
 public:
  small_call(const meeting<T>& m, const Args& a) noexcept : m_(m), a_(a), bytes_(put_bytes(a)) {
    beside_ = bytes_ <= board::cell_bytes;
    if constexpr (requires { a.op; }) beside_ = beside_ && a.in.element_bytes % (2 * board::cell_alignment) != 0;
  }
  /// What to ask for while it is written: a few lines, and all of an all_reduce.
  [[nodiscard]] std::size_t asked_for() const noexcept {
    return beside_ || (bytes_ > few_lines && !std::same_as<Args, all_reduce_args>) ? 0 : bytes_;
  }
  /// The rank that all wait for.
  [[nodiscard]] int source() const noexcept {
    if constexpr (requires { a_.root; }) return a_.root;
    return board::everyone;
  }
  void put(std::uint64_t step) const noexcept {
    std::byte* const to = place(m_.rank(), step);
    if constexpr (std::same_as<Args, reduce_scatter_args>) {  // nobody reads the own block
      const std::size_t block = a_.out.bytes(), from = static_cast<std::size_t>(m_.rank()) * block;
      copy_bytes(to, a_.in.data, from);
      copy_bytes(to + from + block, at(a_.in.data, from + block), bytes_ - from - block);
    } else if constexpr (requires { a_.in; }) {
      copy_bytes(to, a_.in.data, bytes_);
    } else if constexpr (requires { a_.root; }) {
      if (m_.rank() == a_.root) copy_bytes(to, a_.data.data, bytes_);
    }
  }
  /// Where the operands of a reduction will lie: to be listed while the others are on their way.
  [[nodiscard]] const void* const* operands([[maybe_unused]] std::uint64_t step) const {
    if constexpr (requires { a_.op; }) {
      const std::size_t from =  // all_reduce, or the own block
          a_.in.count == a_.out.count ? 0 : static_cast<std::size_t>(m_.rank()) * a_.out.bytes();
      return m_.from_others(at(a_.in.data, from), [&](int r) { return place(r, step) + from; });
    }
    return nullptr;
  }
  void take(std::uint64_t step, [[maybe_unused]] const void* const* operands) const {
    [[maybe_unused]] const auto mine = static_cast<std::size_t>(m_.rank());
    if constexpr (requires { a_.op; }) {
      a_.op.fold_all(operands, m_.size(), a_.out.data, a_.out.count, a_.op.context.data());
    } else if constexpr (requires { a_.in; }) {
      for (std::size_t r = 0; r < static_cast<std::size_t>(m_.size()); ++r)
        copy_bytes(at(a_.out.data, r * bytes_), r == mine ? a_.in.data : place(static_cast<int>(r), step), bytes_);
    } else if constexpr (requires { a_.root; }) {
      if (m_.rank() != a_.root) copy_bytes(a_.data.data, place(a_.root, step), bytes_);
    }
  }

 private:
  [[nodiscard]] std::byte* place(int r, std::uint64_t step) const noexcept {
    return beside_ ? m_.beside(r, step) : m_.slot(r, step, bytes_);
  }

  const meeting<T>& m_;
  const Args& a_;
  std::size_t bytes_;
  bool beside_;
};

}  // namespace detail

/// How much of a small call has been done at once.
enum class progress { nothing, posted, all };

/// Begins a small call where the board is clear, and ends it if the others are seen within so many looks: what a
/// routine costs is as long as their messages take.
template <mapped_transport T, class Args>
progress begin_small(const lane<T>& lane, board& b, const Args& a, int looks) noexcept {
  const detail::meeting<T> m{lane, b, a};
  const detail::small_call<T, Args> call{m, a};
  call.put(m.next());
  const std::uint64_t step = m.post();
  if constexpr (requires { a.op; })
    if (calls_user(a.op.kind)) return progress::posted;  // it may throw
  const auto* const operands = call.operands(step);
  if (call.source() != m.rank() && !b.sees(call.source(), looks)) return progress::posted;
  call.take(step, operands);
  return progress::all;
}

/// A small call through memory that ranks share, or what is left of it. Reductions fold in rank order. One meeting, for
/// which the root of a broadcast does not wait.
template <mapped_transport T, class Args>
routine direct_small(lane<T> lane, board& b, Args a, progress so_far = progress::nothing) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b};
  if (so_far == progress::nothing) m.begin(a);
  const detail::small_call<T, Args> call{m, a};
  if (so_far == progress::nothing) {
    co_await m.everyone(b.step());
    call.put(m.next());
    m.post();
  }
  const std::uint64_t step = b.step();
  if (call.source() == board::everyone)
    co_await m.everyone(step, call.asked_for());
  else if (call.source() != m.rank())
    co_await m.only(call.source(), step, call.asked_for());
  call.take(step, call.operands(step));
}

/// Barrier on the board: each rank stores its step and reads the others'. One meeting.
template <mapped_transport T>
routine direct_barrier(lane<T> lane, board& b) {
  return direct_small(lane, b, barrier_args{});
}

}  // namespace tutti::algo
