#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <span>

namespace tutti::detail {

struct early_message {
  std::uint64_t tag = 0;
  std::span<std::byte> bytes;
  std::uint16_t call = 0;
  bool complete = false;
  std::size_t room = 0;
  std::unique_ptr<std::byte[]> place;
};

/// What early messages lay in, kept for the next ones of any peer, up to `most_kept` bytes: a steady loop allocates
/// nothing. There are as many places as were in use at a time.
class early_places {
 public:
  static constexpr std::size_t most_kept = std::size_t{32} << 20;
  using list = std::list<early_message>;

  /// Moves one that has room for so many bytes to the end of `to`: the smallest that is large enough, else a new one
  /// for the largest. Throws bad_alloc.
  void take(list& to, std::size_t bytes) {
    const std::size_t fits = size_class(bytes);
    std::size_t from = fits;
    while (from < classes && free_[from].empty()) ++from;
    if (from < classes) {
      kept_ -= cost(free_[from].front().room);
      to.splice(to.end(), free_[from], free_[from].begin());
      return;
    }
    drop_one_below(fits);
    const std::size_t room = std::max(bytes, std::size_t{1} << (fits + smallest));
    to.push_back({.room = room, .place = std::make_unique_for_overwrite<std::byte[]>(room)});
  }
  void give(list& from, list::iterator one) noexcept {
    const std::size_t all = cost(one->room);
    if (one->room > largest || all > most_kept - kept_) {
      from.erase(one);
      return;
    }
    kept_ += all;
    list& same = free_[size_class(one->room)];
    same.splice(same.begin(), from, one);
  }
  [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

  /// What one takes, its bookkeeping included.
  static constexpr std::size_t cost(std::size_t bytes) noexcept { return bytes + 96; }

 private:
  // Class c has room for 2^(c + smallest) bytes.
  static constexpr std::size_t smallest = 6, classes = 13, largest = std::size_t{1} << (smallest + classes - 1);

  static constexpr std::size_t size_class(std::size_t bytes) noexcept {
    return static_cast<std::size_t>(std::bit_width(std::max(bytes, std::size_t{1} << smallest) - 1)) - smallest;
  }
  void drop_one_below(std::size_t fits) noexcept {
    for (std::size_t c = std::min(fits, classes); c-- > 0;) {
      if (free_[c].empty()) continue;
      kept_ -= cost(free_[c].front().room);
      free_[c].pop_front();
      return;
    }
  }

  std::array<list, classes> free_;
  std::size_t kept_ = 0;
};

/// Messages that came before anybody asked for them, in their order. They stay where they are: one of them may be half
/// filled.
class early_messages {
 public:
  using message = early_message;
  using list = early_places::list;
  using iterator = list::iterator;

  static constexpr std::size_t cost(std::size_t bytes) noexcept { return early_places::cost(bytes); }

  /// `places`, of all peers, outlives this.
  explicit early_messages(early_places& places) noexcept : places_(&places) {}

  /// Room for one more; its bytes are unspecified. Throws bad_alloc.
  message& add(std::uint64_t tag, std::uint16_t call, std::size_t bytes) {
    places_->take(all_, bytes);
    message& m = all_.back();
    m.tag = tag;
    m.call = call;
    m.bytes = {m.place.get(), bytes};
    m.complete = false;
    held_ += cost(bytes);
    return m;
  }
  void remove(iterator m) noexcept {
    held_ -= cost(m->bytes.size());
    places_->give(all_, m);
  }
  void remove_last() noexcept { remove(std::prev(all_.end())); }
  void clear() noexcept {
    all_.clear();
    held_ = 0;
  }

  [[nodiscard]] iterator begin() noexcept { return all_.begin(); }
  [[nodiscard]] iterator end() noexcept { return all_.end(); }
  [[nodiscard]] list::const_iterator begin() const noexcept { return all_.begin(); }
  [[nodiscard]] list::const_iterator end() const noexcept { return all_.end(); }
  /// What they take.
  [[nodiscard]] std::size_t held() const noexcept { return held_; }

 private:
  early_places* places_;
  list all_;
  std::size_t held_ = 0;
};

}  // namespace tutti::detail
