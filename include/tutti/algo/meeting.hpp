#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/board.hpp>
#include <tutti/algo/fingerprint.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>

namespace tutti::algo::detail {

/// The memory of a group as seen by one operation that has its turn on the board; refers to that operation's lane.
template <mapped_transport T>
class meeting {
 public:
  meeting(const lane<T>& l, board& b) noexcept : lane_(&l), board_(b) {}
  template <class Args>
  meeting(const lane<T>& l, board& b, const Args& call) noexcept : meeting(l, b) {
    begin(call);
  }
  template <class Args>
  void begin(const Args& call) const noexcept {
    board_.begin(call_of(lane_->sequence(), call));
  }

  [[nodiscard]] T& link() const noexcept { return lane_->link(); }
  [[nodiscard]] int size() const noexcept { return lane_->size(); }
  [[nodiscard]] int rank() const noexcept { return lane_->rank(); }
  [[nodiscard]] std::byte* slot(int r, std::uint64_t step, std::size_t bytes = board::slot_bytes) const noexcept {
    return board_.slot(r, step, bytes);
  }
  [[nodiscard]] std::byte* beside(int r, std::uint64_t step) const noexcept { return board_.beside(r, step); }
  [[nodiscard]] std::uint64_t next() const noexcept { return board_.step() + 1; }

  /// Everyone, one rank, or those from one up to another have posted the step, and so many bytes in their slots.
  auto everyone(std::uint64_t step, std::size_t bytes = 0) const noexcept { return those(0, size(), step, bytes); }
  auto only(int r, std::uint64_t step, std::size_t bytes = 0) const noexcept { return those(r, r + 1, step, bytes); }
  auto those(int first, int last, std::uint64_t step, std::size_t bytes = 0) const noexcept {
    return board::reached{board_, lane_->link(), first, last, step, bytes};
  }
  /// Never holds: the failure that another rank has met ends the operation.
  auto failure() const noexcept { return everyone(board::nowhere); }
  auto refuse(status why) const noexcept { return lane_->refuse(why); }
  std::uint64_t post() const noexcept { return board_.post(lane_->link()); }
  std::uint64_t post(board::note n) const noexcept { return board_.post(lane_->link(), n); }

  [[nodiscard]] std::uint64_t place(const void* p, std::size_t bytes) const noexcept {
    return lane_->link().locate(p, bytes).value_or(board::nowhere);
  }
  /// So many bytes at the place that rank `r` has noted, here; null when that is no memory of its.
  [[nodiscard]] std::byte* map(int r, std::uint64_t where, std::size_t bytes) const noexcept {
    return where == board::nowhere ? nullptr : lane_->link().resolve(lane_->members().world_rank(r), where, bytes);
  }
  /// One place of every rank, as the operands of a fold.
  template <class Place>
  const void* const* from_all(Place where) const {
    auto& list = board_.room().operands;
    list.clear();
    for (int r = 0; r < size(); ++r) list.push_back(where(r));
    return list.data();
  }
  /// The same with the own operand where it was: what the others read by now is far from this core.
  template <class Place>
  const void* const* from_others(const void* own, Place where) const {
    return from_all([&](int r) -> const void* { return r == rank() ? own : where(r); });
  }
  /// The process whose private memory the kernel copies for this one; 0 where there is none.
  [[nodiscard]] int process_of(int r) const noexcept {
    return lane_->link().process_of(lane_->members().world_rank(r));
  }
  /// Whether everyone has noted with `step` where its `in` is.
  [[nodiscard]] bool all_noted(std::uint64_t step) const noexcept {
    for (int r = 0; r < size(); ++r)
      if (board_.note_of(r, step).in == board::nowhere) return false;
    return true;
  }
  /// The buffers of so many bytes that everyone noted with `step`, mapped here; false if one of them cannot be.
  bool map_all(std::uint64_t step, std::uint64_t board::note::* which, std::size_t bytes,
               std::vector<std::byte*>& into) const {
    into.clear();
    for (int r = 0; r < size(); ++r) {
      std::byte* p = map(r, board_.note_of(r, step).*which, bytes);
      if (!p) return false;
      into.push_back(p);
    }
    return true;
  }

 private:
  const lane<T>* lane_;  // a copy would be read before it has left the core
  board& board_;
};

}  // namespace tutti::algo::detail
