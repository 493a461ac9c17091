#pragma once
#include <tutti/config.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include <tutti/core/dtype.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/reduction/ops.hpp>
#include <tutti/core/status.hpp>

namespace tutti::watch {

/// The call that a record is of, by its name; of one more name than there are: another one.
struct call_kind {
  static constexpr const char* names[] = {"barrier",    "all_reduce",     "all_reduce_coalesced",
                                          "reduce",     "scan",           "exclusive_scan",
                                          "broadcast",  "all_gather",     "all_gather_v",
                                          "gather",     "gather_v",       "scatter",
                                          "scatter_v",  "reduce_scatter", "reduce_scatter_v",
                                          "all_to_all", "all_to_all_v",   "send",
                                          "recv",       "recv_any",       "split",
                                          "close"};
  std::uint8_t number = static_cast<std::uint8_t>(std::size(names));

  [[nodiscard]] static constexpr call_kind of(std::string_view name) noexcept {
    call_kind k;
    for (k.number = 0; k.number < std::size(names) && name != names[k.number]; ++k.number) {
    }
    return k;
  }
  [[nodiscard]] constexpr const char* name() const noexcept {
    return number < std::size(names) ? names[number] : "operation";
  }
  /// Returns true for a message between two ranks, false for a collective.
  [[nodiscard]] constexpr bool is_message() const noexcept {
    return number >= of("send").number && number <= of("recv_any").number;
  }
  /// Returns true if all ranks of the collective have equal counts. Blocks of any lengths differ, the root of a gather
  /// or scatter has more, and a broadcast of bytes may be of a text, whose length only the root knows.
  [[nodiscard]] constexpr bool has_equal_counts(dtype type) const noexcept {
    const std::string_view n = name();
    return !n.ends_with("_v") && n != "gather" && n != "scatter" && (n != "broadcast" || type != dtype::u8);
  }
};

/// Progress of an operation. `started`: it has had its turn in its group, or has heard of another rank.
enum class progress : std::uint8_t { none, scheduled, started, completed, failed };

/// One operation, as a record holds it: times are ticks, 0 if not reached.
struct operation {
  std::uint64_t id = 0;  ///< ascends with the order of issue; 0: no operation
  std::uint64_t issued = 0, started = 0, ended = 0;
  std::uint64_t count = 0;
  std::uint32_t element_bytes = 1;
  std::uint64_t sequence = 0;  ///< number in its group; messages are counted apart
  std::uint16_t context = 0;   ///< of the group; 0: the world
  std::uint16_t site = 0;      ///< index of the call site; 0: not known
  progress state = progress::none;
  errc result = errc::ok;
  algorithm via = algorithm::automatic;
  dtype type = dtype::u8;
  call_kind call{};
  std::optional<reduction_kind> reduction{};
  std::int32_t other = -1;  ///< root of a collective, peer of a message, numbered in the group; -1: none
  std::uint32_t tag = 0;    ///< of a message; of a collective, 1 + the bucket of a gradient reducer that it is of, or 0

  /// Returns the bucket of a gradient reducer that this collective is of; -1: of none.
  [[nodiscard]] std::int64_t bucket() const noexcept { return call.is_message() ? -1 : std::int64_t{tag} - 1; }
};

/// An operation that is issued, packed into the words of a record, which a compiler keeps in registers.
class issued_operation {
 public:
  constexpr issued_operation(call_kind call, std::uint64_t count, std::uint64_t element_bytes, dtype type) noexcept
      : size_((std::min)(count, most_count) | (std::min)(element_bytes, most_element) << 40U),
        kind_(std::uint64_t{static_cast<std::uint8_t>(progress::scheduled)} << 16U |
              std::uint64_t{static_cast<std::uint8_t>(type)} << 40U | std::uint64_t{call.number} << 48U) {}

  constexpr issued_operation& reduction(reduction_kind k) noexcept {
    kind_ |= (std::uint64_t{static_cast<std::uint8_t>(k)} + 1) << 56U;
    return *this;
  }
  /// Sets the root of a collective, or the peer of a message, numbered in the group.
  constexpr issued_operation& other(int rank) noexcept {
    ends_ = (ends_ & ~std::uint64_t{0xffffffffU}) | static_cast<std::uint32_t>(rank);
    return *this;
  }
  constexpr issued_operation& tag(std::uint32_t t) noexcept {
    ends_ |= std::uint64_t{t} << 32U;
    return *this;
  }
  constexpr issued_operation& place(std::uint64_t sequence, std::uint32_t context, algorithm via) noexcept {
    place_ = place_word(sequence, context);
    kind_ |= std::uint64_t{static_cast<std::uint8_t>(via)} << 32U;
    return *this;
  }

 private:
  friend class record;
  static constexpr std::uint64_t most_count = (std::uint64_t{1} << 40U) - 1, most_element = (1U << 24U) - 1;
  static constexpr std::uint64_t most_sequence = (std::uint64_t{1} << 48U) - 1;
  static constexpr std::uint64_t place_word(std::uint64_t sequence, std::uint32_t context) noexcept {
    return (sequence & most_sequence) | std::uint64_t{context} << 48U;
  }

  std::uint64_t size_, place_ = 0, kind_, ends_ = 0xffffffffU;
};

/// Record of an operation: one cache line that one thread at a time writes and any other may read, also in another
/// process. Word 0 is the id, and 0 while the rest is being written.
class alignas(64) record {
 public:
  /// Writes an operation that is new here.
  void write(std::uint64_t id, std::uint64_t issued, std::uint16_t site, const issued_operation& o) noexcept {
    words_[0].store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    put(1, issued);
    put(2, 0);
    put(3, 0);
    put(4, o.size_);
    put(5, o.place_);
    put(6, o.kind_ | site);
    put(7, o.ends_);
    words_[0].store(id, std::memory_order_release);
  }
  /// Adds what is known once the operation has been started.
  void describe(std::uint64_t sequence, std::uint32_t context, algorithm via) noexcept {
    put(5, issued_operation::place_word(sequence, context));
    put(6, (get(6) & ~(std::uint64_t{0xff} << 32U)) | std::uint64_t{static_cast<std::uint8_t>(via)} << 32U);
  }
  void mark_bucket(std::uint32_t bucket) noexcept {
    put(7, (get(7) & 0xffffffffU) | (std::uint64_t{bucket} + 1) << 32U);
  }
  void start() noexcept { put(6, with(progress::started, errc::ok)); }
  void proceed(std::uint64_t ticks) noexcept { put(2, ticks); }
  /// Ends an operation that took no time worth reading the counter.
  void end_at_once() noexcept { words_[6].store(with(progress::completed, errc::ok), std::memory_order_release); }
  void end(std::uint64_t ticks, errc how) noexcept {
    put(3, ticks);
    if (how == errc::ok && get(2) == 0) put(2, ticks);
    words_[6].store(with(how == errc::ok ? progress::completed : progress::failed, how), std::memory_order_release);
  }

  /// Removes the operation.
  void clear() noexcept { put(0, 0); }

  [[nodiscard]] std::uint64_t id() const noexcept { return words_[0].load(std::memory_order_acquire); }
  /// States that must not be overwritten, from `scheduled` on: those of operations in flight, or of all that nobody has
  /// taken yet.
  static constexpr std::uint32_t in_flight = 2, not_taken = 4;
  [[nodiscard]] bool is_kept(std::uint32_t states) const noexcept {
    return ((static_cast<std::uint32_t>(get(6) >> 16U) - 1U) & 0xffU) < states;
  }
  [[nodiscard]] bool is_ended_and_not_taken() const noexcept { return is_kept(not_taken) && !is_kept(in_flight); }
  void note_taken() noexcept { put(6, get(6) | taken); }
  /// Returns the operation; one with the id 0 if there is none, or if it was replaced meanwhile.
  [[nodiscard]] operation read() const noexcept {
    operation o;
    const std::uint64_t first = id();
    const std::uint64_t site = words_[6].load(std::memory_order_acquire), size = get(4), place = get(5), ends = get(7);
    o.issued = get(1);
    o.started = get(2);
    o.ended = get(3);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (words_[0].load(std::memory_order_relaxed) != first) return {};
    o.id = first;
    o.count = size & issued_operation::most_count;
    o.element_bytes = static_cast<std::uint32_t>(size >> 40U);
    o.sequence = place & issued_operation::most_sequence;
    o.context = static_cast<std::uint16_t>(place >> 48U);
    o.site = static_cast<std::uint16_t>(site);
    o.state = static_cast<progress>(site >> 16U & 0x7fU);
    o.result = static_cast<errc>(site >> 24U & 0xffU);
    o.via = static_cast<algorithm>(site >> 32U & 0xffU);
    o.type = static_cast<dtype>(site >> 40U & 0xffU);
    o.call.number = static_cast<std::uint8_t>(site >> 48U);
    if (const auto kind = site >> 56U; kind != 0) o.reduction = static_cast<reduction_kind>(kind - 1);
    o.other = static_cast<std::int32_t>(static_cast<std::uint32_t>(ends));
    o.tag = static_cast<std::uint32_t>(ends >> 32U);
    return o;
  }

 private:
  static constexpr std::uint64_t taken = std::uint64_t{0x80} << 16U;

  [[nodiscard]] std::uint64_t get(std::size_t i) const noexcept { return words_[i].load(std::memory_order_relaxed); }
  void put(std::size_t i, std::uint64_t value) noexcept { words_[i].store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t with(progress state, errc how) const noexcept {
    return (get(6) & ~(std::uint64_t{0xffff} << 16U)) | std::uint64_t{static_cast<std::uint8_t>(state)} << 16U |
           std::uint64_t{static_cast<std::uint8_t>(how)} << 24U;
  }

  std::array<std::atomic<std::uint64_t>, 8> words_{};
};
static_assert(sizeof(record) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace tutti::watch
