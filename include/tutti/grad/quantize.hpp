#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/residuals.hpp>
#include <tutti/grad/working_copies.hpp>

namespace tutti::grad {

/// 256 numbers as multiples of their own scale.
struct quantized_block {
  static constexpr std::size_t size = 256;
  float scale = 0;  ///< NaN if a number was not finite
  std::int8_t levels[size] = {};

  /// Rounds `values`, at most 256, to the nearest of -127 to 127 times their largest magnitude over 127, and leaves in
  /// each the rounding error: the old value less the new one.
  void encode(std::span<float> values) noexcept {
    float most = 0;
    for (const float x : values) {
      const float magnitude = std::abs(x);
      if (!(magnitude <= (std::numeric_limits<float>::max)())) {
        *this = {std::numeric_limits<float>::quiet_NaN(), {}};
        std::fill(values.begin(), values.end(), 0.0f);
        return;
      }
      most = (std::max)(most, magnitude);
    }
    scale = most / 127;
    std::fill(std::begin(levels), std::end(levels), std::int8_t{0});
    if (scale == 0) return;  // values this small are all error
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float level = std::nearbyint(std::clamp(values[i] / scale, -127.0f, 127.0f));
      levels[i] = static_cast<std::int8_t>(level);
      values[i] -= level * scale;
    }
  }
  [[nodiscard]] float operator[](std::size_t i) const noexcept { return static_cast<float>(levels[i]) * scale; }
};

/// A hook that sends gradients in 8 bits and adds the rounding errors in the next pass. Each block of 256 elements has
/// its own scale. An all_to_all gives every rank a part of the bucket, which it sums in float in rank order, rounds
/// again and distributes by an all_gather: 2 (n-1)/n x 1.016 bytes per element, a quarter of float's. The first is sent
/// in ready(), the second in finish(). Error of a sum in one pass: the sum over the ranks of 1/253 of their block's
/// largest magnitude, and 1/253 of that of the sums (1/254, and float's rounding, for normal numbers); over many passes
/// the errors cancel. A block with an infinity or NaN arrives as NaNs. Memory: a float per element and a rank's part of
/// it, and two copies in 8 bits of each bucket in flight, which reducer_options::in_flight bounds.
class quantize_hook {
 public:
  template <class Comm, number T>
  task<> operator()(Comm& world, bucket_view<T> b) {
    const auto g = b.gradients();
    const auto n = static_cast<std::size_t>(world.size()), blocks = n * part(g.size(), n);
    auto out = copies_.take(world, blocks), in = copies_.take(world, blocks);
    op tail = world.all_reduce(b.tail(), sum, {}, b.where);
    const auto left = sent_.of(b.index, g.size());
    for (std::size_t i = 0; i < g.size(); ++i) left[i] += b.whole(g[i]);
    encode_all(left, out.span());
    op parts = world.all_to_all(out.span(), in.span(), {}, b.where);
    return exchange(world, std::move(out), std::move(in), std::move(parts), std::move(tail), b);
  }

  /// Returns the bytes that a rank sends for a bucket of `count` elements among n ranks.
  [[nodiscard]] static constexpr std::size_t wire_bytes(std::size_t count, std::size_t n) noexcept {
    return 2 * (n - 1) * part(count, n) * sizeof(quantized_block);
  }

  /// Clears the remainders, and frees the copies.
  void reset() noexcept {
    forget_pass();
    copies_.clear();
  }
  /// Clears the remainders after a pass that all ranks skip: its gradients may be meaningless.
  void forget_pass() noexcept {
    sent_.reset();
    summed_.reset();
  }

  /// Returns this rank's state for a checkpoint; load() restores it.
  [[nodiscard]] std::vector<std::byte> save() const {
    state_writer to;
    sent_.save(to);
    summed_.save(to);
    return to.take();
  }
  void load(std::span<const std::byte> state) {
    state_reader from{state};
    residuals sent, summed;
    sent.load(from);
    summed.load(from);
    from.end();
    sent_ = std::move(sent);
    summed_ = std::move(summed);
  }

 private:
  using copy = working_copies<quantized_block>::copy;

  // Returns the number of blocks of each rank's part.
  static constexpr std::size_t part(std::size_t count, std::size_t n) noexcept {
    const std::size_t blocks = (count + quantized_block::size - 1) / quantized_block::size;
    return (blocks + n - 1) / n;
  }

  static void encode_all(std::span<float> values, std::span<quantized_block> out) noexcept {
    for (std::size_t k = 0, at = 0; k < out.size(); ++k, at += quantized_block::size) {
      const std::size_t begin = (std::min)(at, values.size());
      out[k].encode(values.subspan(begin, (std::min)(quantized_block::size, values.size() - begin)));
    }
  }

  // The copies outlive the operations on them, also in a task that is dropped before it starts: parameters are
  // destroyed in reverse order.
  template <class Comm, class T>
  task<> exchange(Comm& world, copy sent, copy received, op first, op tail, bucket_view<T> b) {
    const copy mine_out = std::move(sent), mine_in = std::move(received);
    const auto out = mine_out.span(), in = mine_in.span();
    op parts = std::move(first), last = std::move(tail);
    co_await std::move(parts);
    const auto n = static_cast<std::size_t>(world.size()), mine = in.size() / n;
    const auto left = summed_.of(b.index, mine * quantized_block::size);
    for (std::size_t rank = 0; rank < n; ++rank)
      for (std::size_t k = 0; k < mine; ++k) {
        const quantized_block& q = in[rank * mine + k];
        for (std::size_t i = 0; i < quantized_block::size; ++i) left[k * quantized_block::size + i] += q[i];
      }
    const auto own = out.subspan(static_cast<std::size_t>(world.rank()) * mine, mine);
    encode_all(left, own);
    co_await world.all_gather(own, out, {}, b.where);
    const auto g = b.gradients();
    for (const bucket_slot& slot : b.slots)  // padding stays zero, also if its block became NaNs
      for (std::size_t i = slot.offset; i < slot.offset + slot.count; ++i)
        g[i] = b.scaled(out[i / quantized_block::size][i % quantized_block::size]);
    co_await std::move(last);
  }

  residuals sent_, summed_;
  working_copies<quantized_block> copies_;
};

}  // namespace tutti::grad
