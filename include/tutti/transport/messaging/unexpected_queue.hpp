#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/transport/messaging/by_operation.hpp>

namespace tutti::detail {

/// Unexpected message, with the buffer that holds it.
struct early_message : chained<early_message> {
  std::uint64_t tag = 0;
  std::span<std::byte> bytes;
  std::uint16_t call = 0;
  bool complete = false;
  std::vector<std::byte> place;
  std::list<early_message>::iterator at;  // its position in the list that holds it

  friend std::uint64_t tag_of(const early_message& m) noexcept { return m.tag; }
};

/// Pool of the buffers of unexpected messages, shared by all peers. It keeps up to `most_kept` bytes for later
/// messages, so that a steady loop allocates nothing, and never more buffers than were in use at one time.
class early_places {
 public:
  static constexpr std::size_t most_kept = std::size_t{32} << 20, largest = std::size_t{256} << 10;
  using list = std::list<early_message>;

  early_places() = default;
  early_places(const early_places&) = delete;
  early_places& operator=(const early_places&) = delete;

  /// Moves the smallest free buffer with room for `bytes` to the end of `to`. If none is large enough, allocates one,
  /// and frees the largest free one in exchange. Throws bad_alloc.
  void take(list& to, std::size_t bytes) {
    const std::size_t fits = size_class(bytes);
    if (const std::uint64_t enough = fits < classes ? filled_ >> fits : 0; enough != 0) {
      const std::size_t from = fits + static_cast<std::size_t>(std::countr_zero(enough));
      return move_one(from, to);
    }
    if (list dropped; filled_ != 0) move_one(static_cast<unsigned>(std::bit_width(filled_)) - 1, dropped);
    early_message fresh;
    fresh.place.resize(fits < classes ? room_of(fits) : bytes);
    to.push_back(std::move(fresh));
  }
  /// Takes a buffer back for later use, or frees it if it is too large or the pool is full.
  void give(list& from, list::iterator one) noexcept {
    const std::size_t all = cost(one->place.size()), c = size_class(one->place.size());
    if (c >= classes || all > most_kept - kept_) {
      from.erase(one);
      return;
    }
    kept_ += all;
    filled_ |= std::uint64_t{1} << c;
    free_[c].splice(free_[c].begin(), from, one);
  }
  /// Returns the number of free buffers.
  [[nodiscard]] std::size_t free_places() const noexcept {
    std::size_t n = 0;
    for (const list& l : free_) n += l.size();
    return n;
  }
  /// Returns the bytes that free buffers take.
  [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

  /// Returns the bytes that a message takes, bookkeeping included.
  static constexpr std::size_t cost(std::size_t bytes) noexcept { return bytes + 96; }

 private:
  // Four size classes for each power of two, from 64 bytes on, so that at most a quarter of a buffer is left empty.
  static constexpr std::size_t size_class(std::size_t bytes) noexcept {
    if (bytes <= 64) return 0;
    const auto e = static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;
    return 4 * (e - 6) + ((bytes - 1) >> (e - 2) & 3) + 1;
  }
  static constexpr std::size_t room_of(std::size_t c) noexcept {
    return c == 0 ? 64 : ((c - 1) % 4 + 5) << ((c - 1) / 4 + 4);
  }
  static constexpr std::size_t classes = 49;  // the last has room for the largest message

  void move_one(std::size_t c, list& to) noexcept {
    kept_ -= cost(free_[c].front().place.size());
    to.splice(to.end(), free_[c], free_[c].begin());
    if (free_[c].empty()) filled_ &= ~(std::uint64_t{1} << c);
  }

  std::array<list, classes> free_;
  std::uint64_t filled_ = 0;  // one bit for each class that has a free buffer
  std::size_t kept_ = 0;
};

/// Unexpected queue: messages that arrived before their receive, in order of arrival. A message does not move in
/// memory, because its last bytes may still be arriving.
class unexpected_queue {
 public:
  using message = early_message;
  using list = early_places::list;

  static constexpr std::size_t cost(std::size_t bytes) noexcept { return early_places::cost(bytes); }

  /// Takes buffers from `places`, which serves all peers and outlives this.
  explicit unexpected_queue(early_places& places) noexcept : places_(&places) {}

  /// Appends a message with room for `bytes`; its contents are unspecified. Throws bad_alloc, and then changes nothing.
  message& add(std::uint64_t tag, std::uint16_t call, std::size_t bytes) {
    places_->take(all_, bytes);
    message& m = all_.back();
    m.tag = tag;
    m.call = call;
    m.bytes = {m.place.data(), bytes};
    m.complete = false;
    m.at = std::prev(all_.end());
    try {
      index_.push_back(m);
    } catch (...) {
      places_->give(all_, m.at);
      throw;
    }
    held_ += cost(bytes);
    return m;
  }
  /// Removes a message and returns its buffer to the pool.
  void remove(message& m) noexcept {
    index_.remove(m);
    held_ -= cost(m.bytes.size());
    places_->give(all_, m.at);
  }
  void clear() noexcept {
    index_.clear();
    all_.clear();
    held_ = 0;
  }

  /// Returns the index of the messages by tag.
  [[nodiscard]] const by_operation<message>& index() const noexcept { return index_; }
  [[nodiscard]] list::iterator begin() noexcept { return all_.begin(); }
  [[nodiscard]] list::iterator end() noexcept { return all_.end(); }
  [[nodiscard]] list::const_iterator begin() const noexcept { return all_.begin(); }
  [[nodiscard]] list::const_iterator end() const noexcept { return all_.end(); }
  /// Returns the bytes that all messages take, bookkeeping included.
  [[nodiscard]] std::size_t held() const noexcept { return held_; }

 private:
  early_places* places_;
  list all_;
  by_operation<message> index_;
  std::size_t held_ = 0;
};

}  // namespace tutti::detail
