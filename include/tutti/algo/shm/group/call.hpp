#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/mismatch/fingerprint.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo::detail {

/// One operation's view of its group's board, valid while the operation has its turn. Refers to the operation's lane.
template <mapped_transport T>
class shm_call {
 public:
  shm_call(const group_link<T>& l, shm_group& b) noexcept : lane_(&l), board_(b) {}
  template <class Args>
  shm_call(const group_link<T>& l, shm_group& b, const Args& call) noexcept : shm_call(l, b) {
    begin(call);
  }
  template <class Args>
  void begin(const Args& call) const noexcept {
    board_.begin(call_of(lane_->sequence(), call));
  }

  [[nodiscard]] T& link() const noexcept { return lane_->link(); }
  [[nodiscard]] int size() const noexcept { return lane_->size(); }
  [[nodiscard]] int rank() const noexcept { return lane_->rank(); }
  [[nodiscard]] std::byte* slot(int r, std::uint64_t step, std::size_t bytes = shm_group::slot_bytes) const noexcept {
    return board_.slot(r, step, bytes);
  }
  [[nodiscard]] std::byte* beside(int r, std::uint64_t step) const noexcept { return board_.beside(r, step); }
  [[nodiscard]] std::uint64_t next() const noexcept { return board_.step() + 1; }

  /// Return conditions that all ranks, one rank, or a range of ranks have posted `step`. `bytes` of their slots will be
  /// read.
  auto everyone(std::uint64_t step, std::size_t bytes = 0) const noexcept { return those(0, size(), step, bytes); }
  auto only(int r, std::uint64_t step, std::size_t bytes = 0) const noexcept { return those(r, r + 1, step, bytes); }
  auto those(int first, int last, std::uint64_t step, std::size_t bytes = 0) const noexcept {
    return shm_group::reached{board_, lane_->link(), first, last, step, bytes};
  }
  /// Returns a condition that never holds, to wait on until another rank's failure ends the operation.
  auto failure() const noexcept { return everyone(shm_group::nowhere); }
  auto refuse(status why) const noexcept { return lane_->refuse(why); }
  std::uint64_t post() const noexcept { return board_.post(lane_->link()); }
  std::uint64_t post(shm_group::buffer_descriptor n) const noexcept { return board_.post(lane_->link(), n); }

  [[nodiscard]] std::uint64_t place(const void* p, std::size_t bytes) const noexcept {
    return lane_->link().locate(p, bytes).value_or(shm_group::nowhere);
  }
  /// Returns the address here of `bytes` bytes at the offset that rank `r` has described; null if that is not its
  /// memory.
  [[nodiscard]] std::byte* map(int r, std::uint64_t where, std::size_t bytes) const noexcept {
    return where == shm_group::nowhere ? nullptr : lane_->link().resolve(lane_->members().world_rank(r), where, bytes);
  }
  /// Lists `where(r)` for every rank, as the operands of a fold.
  template <class Place>
  const void* const* from_all(Place where) const {
    auto& list = board_.room().operands;
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
    return lane_->link().process_of(lane_->members().world_rank(r));
  }
  /// Returns true if every rank has described an `in` buffer with `step`.
  [[nodiscard]] bool all_noted(std::uint64_t step) const noexcept {
    for (int r = 0; r < size(); ++r)
      if (board_.descriptor_of(r, step).in == shm_group::nowhere) return false;
    return true;
  }
  /// Maps the buffers of `bytes` bytes that all ranks have described with `step`. Returns false if one cannot be
  /// mapped.
  bool map_all(std::uint64_t step, std::uint64_t shm_group::buffer_descriptor::* which, std::size_t bytes,
               std::vector<std::byte*>& into) const {
    into.clear();
    for (int r = 0; r < size(); ++r) {
      std::byte* p = map(r, board_.descriptor_of(r, step).*which, bytes);
      if (!p) return false;
      into.push_back(p);
    }
    return true;
  }

 private:
  const group_link<T>* lane_;  // a pointer: a copy would be read back before its stores have completed
  shm_group& board_;
};

}  // namespace tutti::algo::detail
