#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/algo/message/pipeline.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

namespace detail {

/// Schedule of the blocks of a buffer around a ring, in chunks: the block that is sent, and the one that arrives, as
/// the i-th chunk.
class ring_path {
 public:
  template <message_link L>
  ring_path(const L& link, blocks cut, std::size_t element_bytes) noexcept
      : rank_(static_cast<std::size_t>(link.rank())),
        size_(static_cast<std::size_t>(link.size())),
        cut_(cut),
        element_bytes_(element_bytes),
        chunk_(whole_elements(chunk_bytes, element_bytes)),
        per_step_(std::max<std::size_t>((cut.longest() + chunk_ - 1) / chunk_, 1)) {}

  [[nodiscard]] std::size_t per_step() const noexcept { return per_step_; }
  /// Returns the course of `steps` steps around the ring.
  [[nodiscard]] course around(std::size_t steps, std::uint64_t first) const noexcept {
    return {static_cast<int>((rank_ + size_ - 1) % size_), static_cast<int>((rank_ + 1) % size_), steps * per_step_,
            per_step_, first};
  }
  /// Returns the bytes of the longest chunk.
  [[nodiscard]] std::size_t longest() const noexcept { return (std::min)(chunk_, cut_.longest()) * element_bytes_; }

  /// Return the block of chunk i. In the reduction rank r first sends block r - 1 and last receives block r; in the
  /// gathering it first sends block r.
  [[nodiscard]] std::size_t reduced_in(std::size_t i) const noexcept { return back(i, 2); }
  [[nodiscard]] std::size_t reduced_out(std::size_t i) const noexcept { return back(i, 1); }
  [[nodiscard]] std::size_t passed_in(std::size_t i) const noexcept { return back(i, 1); }
  [[nodiscard]] std::size_t passed_out(std::size_t i) const noexcept { return back(i, 0); }

  /// Returns the elements of block b that travel as chunk i; bytes() and begin() return their bytes and first byte.
  [[nodiscard]] std::size_t count(std::size_t b, std::size_t i) const noexcept {
    const std::size_t before = (std::min)((i % per_step_) * chunk_, cut_.size(b));
    return (std::min)(chunk_, cut_.size(b) - before);
  }
  [[nodiscard]] std::size_t bytes(std::size_t b, std::size_t i) const noexcept { return count(b, i) * element_bytes_; }
  [[nodiscard]] std::size_t begin(std::size_t b, std::size_t i) const noexcept {
    return (cut_.begin(b) + (std::min)((i % per_step_) * chunk_, cut_.size(b))) * element_bytes_;
  }
  template <class Byte>
  [[nodiscard]] std::span<Byte> chunk(Byte* data, std::size_t b, std::size_t i) const noexcept {
    return {data + begin(b, i), bytes(b, i)};
  }

 private:
  [[nodiscard]] std::size_t back(std::size_t i, std::size_t by) const noexcept {
    return (rank_ + 2 * size_ - i / per_step_ % size_ - by) % size_;
  }
  std::size_t rank_, size_;
  blocks cut_;
  std::size_t element_bytes_, chunk_, per_step_;
};

/// Gathers all blocks on all ranks around the ring. Rank r starts with block r, which is at `own`, in its place or
/// elsewhere. Steps [first, first + n - 1).
template <message_link L>
routine ring_gather(L link, const void* own, void* data, std::size_t element_bytes, blocks cut, std::uint64_t first) {
  const ring_path path(link, cut, element_bytes);
  auto* bytes = static_cast<std::byte*>(data);
  const auto r = static_cast<std::size_t>(link.rank());
  const std::size_t before_own = cut.begin(r) * element_bytes;
  copy_bytes(bytes + before_own, own, cut.size(r) * element_bytes);
  co_await pipeline(
      link, path.around(static_cast<std::size_t>(link.size() - 1), first),
      [&](std::size_t i) {
        const std::size_t b = path.passed_out(i), begin = path.begin(b, i);
        // Lines that other cores have read are slow to write again, so the own block is sent from `own`, not from its
        // copy.
        const auto* from =
            i < path.per_step() ? static_cast<const std::byte*>(own) + (begin - before_own) : bytes + begin;
        return std::span{from, path.bytes(b, i)};
      },
      [&](std::size_t i) { return path.chunk(bytes, path.passed_in(i), i); }, [](std::size_t) {});
}

/// Reduces blocks around the ring until rank r has the result of block r, and passes the results on for `passing`
/// steps, n - 1 for an all_reduce. The two phases overlap.
template <message_link L>
routine ring_blocks(L link, void* buffer, std::size_t element_bytes, blocks cut, const reduction& with,
                    std::size_t passing) {
  const auto n = static_cast<std::size_t>(link.size());
  const ring_path path(link, cut, element_bytes);
  const std::size_t slot = whole_lines(path.longest());
  scratch incoming(link, n > 1 ? chunks_ahead * slot : 0);
  if (!incoming) co_await link.refuse({errc::out_of_resources});
  auto* data = static_cast<std::byte*>(buffer);
  const bool mine_first = n == 2 && link.rank() == 0;
  const std::size_t reducing = (n - 1) * path.per_step();
  co_await pipeline(
      link, path.around(n - 1 + passing, 0),
      [&](std::size_t i) {
        const std::size_t b = i < reducing ? path.reduced_out(i) : path.passed_out(i - reducing);
        return path.chunk<const std::byte>(data, b, i);
      },
      [&](std::size_t i) {
        if (i >= reducing) return path.chunk(data, path.passed_in(i - reducing), i);
        return std::span{incoming.data() + i % chunks_ahead * slot, path.bytes(path.reduced_in(i), i)};
      },
      [&](std::size_t i) {
        if (i >= reducing) return;
        const std::size_t b = path.reduced_in(i), count = path.count(b, i);
        std::byte *into = data + path.begin(b, i), *from = incoming.data() + i % chunks_ahead * slot;
        // The chunk that arrives was folded over the ranks to the left: it is the left operand.
        if (mine_first)
          with.fold(from, into, count, with.context.data());
        else
          fold_left(with, from, into, count, count * element_bytes);
        if (with.finish && i + path.per_step() >= reducing) with.finish(into, count, link.size(), with.context.data());
      });
}

}  // namespace detail

/// All-reduce as reduce-scatter and all-gather around a ring; the two phases overlap. Any number of ranks, any count.
/// Block b is folded from rank b + 1 on around to rank b; with two ranks, rank 0 is always the left operand. 2(n-1)
/// steps, 2N(n-1)/n bytes sent per rank: the least possible (Patarasuk and Yuan, 2009).
template <message_link L>
routine ring_all_reduce(L link, all_reduce_args a) {
  const auto n = static_cast<std::size_t>(link.size());
  copy_bytes(a.out.data, a.in.data, a.out.bytes());
  co_await detail::ring_blocks(link, a.out.data, a.out.element_bytes, blocks{a.out.count, n}, a.op, n - 1);
  if (n == 1 && a.op.finish) a.op.finish(a.out.data, a.out.count, 1, a.op.context.data());
}

/// Reduce-scatter around a ring; `out` may be this rank's block of `in`. n-1 steps, N(n-1)/n bytes sent per rank for an
/// input of N bytes.
template <message_link L>
routine ring_reduce_scatter(L link, reduce_scatter_args a) {
  const std::size_t size = a.out.element_bytes;
  const auto n = static_cast<std::size_t>(link.size()), r = static_cast<std::size_t>(link.rank());
  const detail::ring_path path(link, blocks{a.in.count, n}, size);
  const std::size_t slot = whole_lines(path.longest()), chunks = (n - 1) * path.per_step();
  const auto* in = static_cast<const std::byte*>(a.in.data);
  auto* out = static_cast<std::byte*>(a.out.data);
  const bool in_place = out == in + r * a.out.bytes();
  // With more than two ranks, sums on their way to the next rank lie in `out`, unless that is still needed as input.
  scratch incoming(link, n > 1 ? chunks_ahead * slot : 0), partial(link, in_place && n > 2 ? a.out.bytes() : 0);
  if (!incoming || !partial) co_await link.refuse({errc::out_of_resources});
  std::byte* const sums = partial.data() ? partial.data() : out;
  const std::size_t own = r * a.out.bytes();
  const auto within = [&](std::size_t b, std::size_t i) { return path.begin(b, i) - b * a.out.bytes(); };
  co_await detail::pipeline(
      link, path.around(n - 1, 0),
      [&](std::size_t i) {
        const std::size_t b = path.reduced_out(i);
        if (i < path.per_step()) return path.chunk(in, b, i);
        return std::span<const std::byte>{sums + within(b, i), path.bytes(b, i)};
      },
      [&](std::size_t i) {
        return std::span{incoming.data() + i % chunks_ahead * slot, path.bytes(path.reduced_in(i), i)};
      },
      [&](std::size_t i) {
        const std::size_t b = path.reduced_in(i), count = path.count(b, i);
        const bool last = i + path.per_step() >= chunks;
        std::byte *from = incoming.data() + i % chunks_ahead * slot, *into = (last ? out : sums) + within(b, i);
        if (n == 2 && r == 0) {
          copy_bytes(into, in + path.begin(b, i), count * size);
          a.op.fold(from, into, count, a.op.context.data());
        } else {
          a.op.fold(in + path.begin(b, i), from, count, a.op.context.data());
          copy_bytes(into, from, count * size);
        }
        if (last && a.op.finish) a.op.finish(into, count, link.size(), a.op.context.data());
      });
  if (n > 1) co_return;
  copy_bytes(out, in + own, a.out.bytes());
  if (a.op.finish) a.op.finish(out, a.out.count, 1, a.op.context.data());
}

/// All-gather around a ring. n-1 steps, n-1 blocks sent per rank.
template <message_link L>
routine ring_all_gather(L link, all_gather_args a) {
  co_await detail::ring_gather(link, a.in.data, a.out.data, a.out.element_bytes,
                               blocks{a.out.count, static_cast<std::size_t>(link.size())}, 0);
}

}  // namespace tutti::algo
