#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Bytes of a chunk of a large message, and the number of chunks in flight at a time: enough to keep both ends busy,
/// few enough to stay in a core's cache.
inline constexpr std::size_t chunk_bytes = std::size_t{256} << 10;
inline constexpr std::size_t chunks_ahead = 2;

/// Returns the number of chunks of `bytes` bytes; an empty message is one empty chunk.
constexpr std::size_t chunk_count(std::size_t bytes, std::size_t chunk = chunk_bytes) noexcept {
  return bytes == 0 ? 1 : (bytes + chunk - 1) / chunk;
}
template <class Byte>
std::span<Byte> nth_chunk(std::span<Byte> data, std::size_t i, std::size_t chunk = chunk_bytes) noexcept {
  return data.subspan(i * chunk, (std::min)(chunk, data.size() - i * chunk));
}

namespace detail {

/// Storage for up to N transfers in flight, in the frame of the routine that awaits them. Transfers cannot move, so
/// they are constructed in place.
template <class Transfer, std::size_t N = chunks_ahead>
class in_flight {
 public:
  in_flight() = default;
  in_flight(const in_flight&) = delete;
  in_flight& operator=(const in_flight&) = delete;
  ~in_flight() {
    for (std::size_t i = 0; i < N; ++i) end(i);
  }
  /// Begins transfer number i; transfer i - N must have finished.
  template <class Make>
  void begin(std::size_t i, Make make) {
    end(i % N);
    ::new (static_cast<void*>(place_[i % N])) Transfer(make());
    made_[i % N] = true;
  }
  /// Begins all transfers before number `last` that have not begun, by `make(i)`.
  template <class Make>
  void begin_before(std::size_t last, Make make) noexcept {
    for (; begun_ < last; ++begun_) begin(begun_, [&] { return make(begun_); });
  }
  [[nodiscard]] Transfer& operator[](std::size_t i) noexcept {
    return *std::launder(reinterpret_cast<Transfer*>(place_[i % N]));
  }

 private:
  void end(std::size_t slot) noexcept {
    if (made_[slot]) (*this)[slot].~Transfer();
    made_[slot] = false;
  }
  alignas(Transfer) std::byte place_[N][sizeof(Transfer)];
  bool made_[N] = {};
  std::size_t begun_ = 0;  // by begin_before()
};

/// Peers and steps of a pipeline.
struct course {
  int from, to;
  std::size_t chunks;    ///< chunks in all steps
  std::size_t per_step;  ///< chunk i belongs to step i / per_step; it sends what arrived in the step before
  std::uint64_t first;   ///< number of the first step, for the tags
};

/// Sends chunks to one rank while as many arrive from another: chunk i + per_step is sent after chunk i has landed.
/// `out(i)` returns the bytes to send, `into(i)` those to receive into; `landed(i)` is called when chunk i is received
/// and sent. Receives are posted ahead, so neither side waits for the other between two chunks.
template <message_link L, class Out, class Into, class Landed>
routine pipeline(L link, course c, Out out, Into into, Landed landed) {
  in_flight<decltype(link.send(0, 0, {}))> sends;
  in_flight<decltype(link.recv(0, 0, {}))> receives;
  const std::size_t ahead = (std::min)(chunks_ahead, c.per_step);
  for (std::size_t i = 0; i < c.chunks; ++i) {
    const std::size_t last = (std::min)(c.chunks, i + ahead);
    // Sends first: they are on their way while this rank looks for arrivals.
    sends.begin_before(last, [&](std::size_t k) { return link.send(c.to, c.first + k / c.per_step, out(k)); });
    receives.begin_before(last, [&](std::size_t k) { return link.recv(c.from, c.first + k / c.per_step, into(k)); });
    auto& arrival = receives[i];  // a reference: g++ 12 copies the result of a call in co_await
    auto& departure = sends[i];
    co_await arrival;
    co_await departure;
    landed(i);
  }
}

/// Folds into[i] = left[i] op into[i]; overwrites `left` if the order of operands can show in the result.
inline void fold_left(const reduction& with, void* left, void* into, std::size_t count, std::size_t bytes) {
  const reduction_kind k = with.kind;
  const bool either_way = k == reduction_kind::sum || k == reduction_kind::prod || k == reduction_kind::mean ||
                          k == reduction_kind::mean_over || k == reduction_kind::band || k == reduction_kind::bor ||
                          k == reduction_kind::bxor;
  if (!either_way) {  // the order shows in a minimum of two zeros, or in one of two equal maxima
    with.fold(into, left, count, with.context.data());
    copy_bytes(into, left, bytes);
  } else {
    with.fold(left, into, count, with.context.data());
  }
}

}  // namespace detail
}  // namespace tutti::algo
