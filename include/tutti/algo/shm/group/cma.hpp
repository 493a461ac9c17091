#pragma once
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/group/call.hpp>
#include <tutti/algo/shm/group/direct_copy.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/status.hpp>
#include <tutti/os/process_memory.hpp>
#include <tutti/transport/messaging/group_link.hpp>

/// Cross-memory attach: buffers that peers do not map can be described by address; the kernel then copies them once
/// between the processes, where staging copies twice. It serves copies only: operands of a fold would have to be copied
/// first.
namespace tutti::algo::detail {

/// Buffer of another rank, mapped here or accessible by cross-memory attach.
struct remote_buffer {
  std::byte* at = nullptr;  ///< null: there is none
  int process = 0;          ///< 0: mapped here, `at` is an address of this process

  explicit operator bool() const noexcept { return at != nullptr; }
  [[nodiscard]] std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(at); }
};
inline remote_buffer operator+(remote_buffer b, std::size_t bytes) noexcept { return {b.at + bytes, b.process}; }

/// Bit of a descriptor that marks an address for cross-memory attach, not an offset in a heap.
inline constexpr std::uint64_t by_cma = std::uint64_t{1} << 63;

/// Returns the descriptor of a buffer that others are to copy: its offset if they map it, else its address if it has at
/// least `least` bytes, which makes cross-memory attach worthwhile, else shm_group::no_offset.
template <mapped_transport T>
std::uint64_t place_or_cma(const shm_call<T>& call, const void* p, std::size_t bytes, std::uint64_t least) noexcept {
  const std::uint64_t where = call.place(p, bytes), address = reinterpret_cast<std::uintptr_t>(p);
  if (where != shm_group::no_offset || bytes < least || (address & by_cma) != 0) return where;
  return os::kernel_copies(p, bytes) ? address | by_cma : shm_group::no_offset;
}

/// Returns the descriptor of a block that every rank copies from every other, as place_or_cma() does. Messages that
/// exceed the caches are staged by streaming stores instead. `longest` is the longest block, `message` the bytes of all
/// blocks.
template <mapped_transport T>
std::uint64_t place_or_cma_block(const shm_call<T>& call, const shm_group& shm, const void* p, std::size_t bytes,
                                 std::size_t longest, std::size_t message) noexcept {
  const bool pays = longest >= shm.cma().blocks && message < beyond_caches;
  return place_or_cma(call, p, bytes, pays ? 1 : shm_group::no_offset);
}

/// Returns the buffer that rank `r` has described as `where`.
template <mapped_transport T>
remote_buffer find(const shm_call<T>& call, int r, std::uint64_t where, std::size_t bytes) noexcept {
  if (where == shm_group::no_offset || (where & by_cma) == 0) return {call.map(r, where, bytes)};
  const int process = call.process_of(r);
  return process == 0 ? remote_buffer{} : remote_buffer{reinterpret_cast<std::byte*>(where & ~by_cma), process};
}

/// Bytes that cross-memory attach copies between two checks for a failure of the group.
inline constexpr std::size_t cma_chunk = shm_group::slot_bytes;

/// Copies a buffer by cross-memory attach, chunk by chunk by `copy(done, bytes)`, which returns 0 or an errno. Returns
/// the first error; ESRCH if some rank failed meanwhile.
template <class Copy>
int copy_by_cma(shm_group& shm, std::size_t bytes, Copy copy) {
  const shm_group::access_epoch access{shm};
  int failed = 0;
  for (std::size_t done = 0; done < bytes && failed == 0; done += cma_chunk)
    failed = access.permitted() ? copy(done, chunk_size(bytes, done, cma_chunk)) : ESRCH;
  return failed;
}

/// Copies a block of a message from a buffer of another rank, or (copy_to) to it. Returns 0 or the kernel's errno;
/// ESRCH also if some rank failed meanwhile.
inline int copy_from(shm_group& shm, std::byte* to, remote_buffer from, std::size_t bytes, std::size_t message) {
  if (from.process == 0) return copy_mapped(shm, to, from.at, bytes, message) ? 0 : ESRCH;
  return copy_by_cma(shm, bytes, [=](std::size_t done, std::size_t n) {
    return os::read_process(from.process, to + done, (from + done).address(), n);
  });
}
inline int copy_to(shm_group& shm, remote_buffer to, const std::byte* from, std::size_t bytes, std::size_t message) {
  if (to.process == 0) return copy_mapped(shm, to.at, from, bytes, message) ? 0 : ESRCH;
  return copy_by_cma(shm, bytes, [=](std::size_t done, std::size_t n) {
    return os::write_process(to.process, (to + done).address(), from + done, n);
  });
}

/// Returns the error of a copy that has ended with errno `failed`.
inline status copy_failure(int failed) noexcept { return {errc::system, 0, -1, static_cast<std::uint64_t>(failed)}; }

/// Copies the blocks of all ranks to their places in `all`, as `blocks` lays them out: this rank's from `own`, the
/// others' from the buffers that they have described with `step`. A block that is in its place already is not copied.
template <mapped_transport T>
status copy_described(const group_link<T>& link, const shm_call<T>& call, shm_group& shm, std::uint64_t step,
                      const layout& blocks, const_buffer own, buffer all) {
  const auto n = static_cast<std::size_t>(call.size());
  const std::size_t element = own.element_bytes, longest = blocks.longest() * element, message = all.bytes();
  const std::size_t turn = turn_bytes(shm, longest, message);
  for (std::size_t done = 0; done < longest; done += turn)
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t r = (static_cast<std::size_t>(call.rank()) + i) % n;  // not all from the same rank at once
      const std::size_t whole = blocks.size(r) * element, bytes = chunk_size(whole, done, turn);
      if (bytes == 0) continue;  // an empty block has the next one's address
      std::byte* const to = at(all.data, blocks.begin(r) * element);
      if (i == 0) {
        if (to != own.data) copy_out(to + done, at(own.data, done), bytes, message);
        continue;
      }
      const auto rank = static_cast<int>(r);
      const remote_buffer from = find(call, rank, shm.descriptor_of(rank, step).in, whole);
      if (!from) return {errc::protocol, 0, link.members().world_rank(rank), 0};
      if (const int failed = copy_from(shm, to + done, from + done, bytes, message)) return copy_failure(failed);
    }
  return {};
}

/// Ends the operation after a copy from or to another rank's buffer has failed: with the failure of the rank that
/// failed first, else with `why`.
template <mapped_transport T>
routine give_up(shm_call<T> call, status why) {
  if (why.code == errc::system && why.detail == ESRCH) co_await call.failure();
  co_await call.refuse(why);
}
template <mapped_transport T>
routine give_up(shm_call<T> call, int failed) {
  return give_up(call, copy_failure(failed));
}

}  // namespace tutti::algo::detail
