#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/block.hpp>
#include <tutti/algo/board.hpp>
#include <tutti/algo/fingerprint.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>

namespace tutti::algo {

namespace detail {

/// The memory of a group as seen by one operation that has its turn on the board.
template <mapped_transport T>
class meeting {
 public:
  template <class Args>
  meeting(lane<T> l, board& b, const Args& call) noexcept : lane_(l), board_(b) {
    b.begin(fingerprint(l.sequence(), call));
  }

  [[nodiscard]] int size() const noexcept { return lane_.size(); }
  [[nodiscard]] int rank() const noexcept { return lane_.rank(); }
  [[nodiscard]] std::byte* slot(int r, std::uint64_t step) const noexcept { return board_.slot(r, step); }
  [[nodiscard]] std::uint64_t next() const noexcept { return board_.step() + 1; }

  auto everyone(std::uint64_t step) const noexcept { return board::reached{board_, lane_.link(), step}; }
  auto only(int r, std::uint64_t step) const noexcept { return board::reached{board_, lane_.link(), step, r}; }
  /// Never holds: the failure that another rank has met ends the operation.
  auto failure() const noexcept { return everyone(board::nowhere); }
  std::uint64_t post() const noexcept { return board_.post(lane_.link()); }
  std::uint64_t post(board::note n) const noexcept { return board_.post(lane_.link(), n); }

  [[nodiscard]] std::uint64_t place(const void* p, std::size_t bytes) const noexcept {
    return lane_.link().locate(p, bytes).value_or(board::nowhere);
  }
  /// One place of every rank, as the operands of a fold.
  template <class Place>
  const void* const* from_all(Place where) const {
    auto& list = board_.room().operands;
    list.clear();
    for (int r = 0; r < size(); ++r) list.push_back(where(r));
    return list.data();
  }
  /// The buffers of so many bytes that everyone noted with `step`, mapped here; false if one of them cannot be.
  template <class Choose>
  bool map_all(std::uint64_t step, Choose choose, std::size_t bytes, std::vector<std::byte*>& into) const {
    into.clear();
    for (int r = 0; r < size(); ++r) {
      const std::uint64_t where = choose(board_.note_of(r, step));
      std::byte* p =
          where == board::nowhere ? nullptr : lane_.link().resolve(lane_.members().world_rank(r), where, bytes);
      if (!p) return false;
      into.push_back(p);
    }
    return true;
  }

 private:
  lane<T> lane_;
  board& board_;
};

/// Everyone stages the whole message, everyone folds all of it: one meeting.
template <mapped_transport T>
routine all_reduce_once(meeting<T> m, const void* in, void* out, std::size_t count, std::size_t element,
                        const reduction& with) {
  const std::uint64_t step = m.next();
  co_await m.everyone(step - 1);
  copy_bytes(m.slot(m.rank(), step), in, count * element);
  m.post();
  co_await m.everyone(step);
  with.fold_all(m.from_all([&](int r) { return m.slot(r, step); }), m.size(), out, count, with.context.data());
}

/// One slot's worth: everyone stages it, folds its own part of it, stages the result: two meetings.
template <mapped_transport T>
routine all_reduce_slot(meeting<T> m, const void* in, void* out, std::size_t count, std::size_t element,
                        const reduction& with) {
  const auto mine = static_cast<std::size_t>(m.rank());
  const blocks cut{count, static_cast<std::size_t>(m.size())};
  const std::uint64_t step = m.next();
  co_await m.everyone(step - 1);
  copy_bytes(m.slot(m.rank(), step), in, count * element);
  m.post();
  co_await m.everyone(step);
  const std::size_t from = cut.begin(mine) * element;
  std::byte* result = m.slot(m.rank(), step + 1) + from;
  with.fold_all(m.from_all([&](int r) { return m.slot(r, step) + from; }), m.size(), result, cut.size(mine),
                with.context.data());
  m.post();
  co_await m.everyone(step + 1);
  for (std::size_t r = 0; r < cut.parts; ++r)
    copy_bytes(at(out, cut.begin(r) * element), m.slot(static_cast<int>(r), step + 1) + cut.begin(r) * element,
               cut.size(r) * element);
}

/// Buffers that everyone maps: fold one's own part of all inputs and store it to all outputs. Nothing is staged.
/// False if some rank failed meanwhile.
inline bool reduce_in_place(board& b, std::size_t mine, std::size_t begin, std::size_t count, std::size_t element,
                            const reduction& with) {
  auto& [operands, in, out] = b.room();
  const std::size_t block =
      std::max<std::size_t>(1, (std::size_t{16} << 10) / element);  // stays in the first-level cache
  const board::visit visit{b};
  operands.resize(in.size());
  for (std::size_t done = 0; done < count; done += block) {
    if (!visit.welcome()) return false;
    const std::size_t m = std::min(block, count - done), offset = (begin + done) * element;
    for (std::size_t r = 0; r < in.size(); ++r) operands[r] = in[r] + offset;
    std::byte* result = out[mine] + offset;
    with.fold_all(operands.data(), static_cast<int>(in.size()), result, m, with.context.data());
    for (std::size_t r = 0; r < out.size(); ++r)
      if (r != mine) copy_bytes(out[r] + offset, result, m * element);
  }
  return true;
}

}  // namespace detail

/// All-reduce through memory that ranks share. Every element is folded in rank order on one rank, so the bits depend on
/// neither size nor placement. Up to 64 KiB: one meeting, n slots read per rank. Buffers that all ranks map: two
/// meetings, 1/n of the elements folded and stored n times per rank. Otherwise in slots of 256 KiB: two meetings each.
template <mapped_transport T>
routine direct_all_reduce(lane<T> lane, board& b, all_reduce_args a) {
  constexpr std::size_t one_meeting = std::size_t{64} << 10;
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, a};
  const std::size_t element = a.out.element_bytes, count = a.out.count;
  if (a.out.bytes() <= one_meeting) {
    co_await detail::all_reduce_once(m, a.in.data, a.out.data, count, element, a.op);
    co_return;
  }
  board::exposure shown{b, lane.link()};
  const std::uint64_t step = m.post({m.place(a.in.data, a.in.bytes()), m.place(a.out.data, a.out.bytes())});
  co_await m.everyone(step);
  auto& lists = b.room();
  if (m.map_all(
          step, [](const board::note& n) { return n.in; }, a.in.bytes(), lists.in) &&
      m.map_all(step, [](const board::note& n) { return n.out; }, a.out.bytes(), lists.out)) {
    const blocks cut{count, static_cast<std::size_t>(m.size())};
    const auto mine = static_cast<std::size_t>(m.rank());
    if (!detail::reduce_in_place(b, mine, cut.begin(mine), cut.size(mine), element, a.op)) co_await m.failure();
    const std::uint64_t end = m.post();
    co_await m.everyone(end);
    shown.close();
    co_return;
  }
  shown.close();
  const std::size_t most = std::max<std::size_t>(1, board::slot_bytes / element);
  for (std::size_t done = 0; done < count; done += most)
    co_await detail::all_reduce_slot(m, at(a.in.data, done * element), at(a.out.data, done * element),
                                     std::min(most, count - done), element, a.op);
}

/// Barrier on the board: each rank stores its step and reads the others'. One meeting.
template <mapped_transport T>
routine direct_barrier(lane<T> lane, board& b) {
  board::turn turn{b, lane.link()};
  co_await turn;
  if (!b.is_open()) co_await b.open(lane);
  detail::meeting<T> m{lane, b, barrier_args{}};
  const std::uint64_t step = m.post();
  co_await m.everyone(step);
}

}  // namespace tutti::algo
