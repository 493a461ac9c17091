#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tutti/transport/messaging/tag.hpp>

namespace tutti::detail {

/// Base of what by_operation holds: one message, or a receive of one.
template <class T>
class chained {
  template <class>
  friend class by_operation;
  T* next_of_operation_ = nullptr;
  T* previous_of_operation_ = nullptr;
};

/// Finds messages by their tags, in the order in which they came, among any number in a time that does not grow with
/// it: a table of chains, one for each operation of which there are some, or for each tag of users. Owns none of them.
/// `T` is derived from chained<T>, and `tag_of(t)` returns the tag of one.
template <class T>
class by_operation {
 public:
  [[nodiscard]] bool empty() const noexcept { return chains_ == 0; }

  /// Behind the others of its operation. Throws bad_alloc, and has done nothing then.
  void push_back(T& t) {
    if (2 * (chains_ + 1) > table_.size()) grow();
    chain& c = table_[place_of(key_of(tag_of(t)))];
    if (!c.first) {
      c = {key_of(tag_of(t)), nullptr, nullptr};
      ++chains_;
    }
    chained<T>& links = t;
    links.previous_of_operation_ = c.last;
    links.next_of_operation_ = nullptr;
    (c.last ? static_cast<chained<T>&>(*c.last).next_of_operation_ : c.first) = &t;
    c.last = &t;
  }
  /// One that is here.
  void remove(T& t) noexcept {
    const std::size_t at = place_of(key_of(tag_of(t)));
    chain& c = table_[at];
    chained<T>& links = t;
    T *const next = links.next_of_operation_, *const previous = links.previous_of_operation_;
    (previous ? static_cast<chained<T>&>(*previous).next_of_operation_ : c.first) = next;
    (next ? static_cast<chained<T>&>(*next).previous_of_operation_ : c.last) = previous;
    if (!c.first) close_gap(at);
  }
  void clear() noexcept {
    for (chain& c : table_) c = {};
    chains_ = 0;
  }

  /// The first of the operation that this tag is of, or of a user's messages with this tag.
  [[nodiscard]] T* first(std::uint64_t tag) const noexcept {
    return chains_ == 0 ? nullptr : table_[place_of(key_of(tag))].first;
  }
  static T* after(const T& t) noexcept { return static_cast<const chained<T>&>(t).next_of_operation_; }
  /// The nth with exactly this tag.
  [[nodiscard]] T* find(std::uint64_t tag, std::size_t nth = 0) const noexcept {
    for (T* t = first(tag); t; t = after(*t))
      if (tag_of(*t) == tag && nth-- == 0) return t;
    return nullptr;
  }
  [[nodiscard]] std::size_t number_of(std::uint64_t tag) const noexcept {
    std::size_t n = 0;
    for (const T* t = first(tag); t; t = after(*t)) n += tag_of(*t) == tag ? 1U : 0U;
    return n;
  }

 private:
  struct chain {
    std::uint64_t key = 0;
    T* first = nullptr;  // null where the place is free
    T* last = nullptr;
  };

  // Tags of users have bit 48 set, the number of an operation with its context has 40 bits.
  static constexpr std::uint64_t key_of(std::uint64_t t) noexcept { return tag::is_point_to_point(t) ? t : t >> 24; }
  [[nodiscard]] std::size_t home_of(std::uint64_t key) const noexcept {
    return ((key * 0x9e3779b97f4a7c15U) >> 32) & (table_.size() - 1);
  }
  /// Returns the place where the chain of this key is, or would be: places are tried one after the other.
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const noexcept {
    std::size_t at = home_of(key);
    while (table_[at].first && table_[at].key != key) at = (at + 1) & (table_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<chain> old(table_.empty() ? 16 : 2 * table_.size());
    old.swap(table_);
    for (const chain& c : old)
      if (c.first) table_[place_of(c.key)] = c;
  }
  /// Chains behind a place that is free now move up where it is on their way.
  void close_gap(std::size_t gap) noexcept {
    --chains_;
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = (gap + 1) & mask; table_[at].first; at = (at + 1) & mask)
      if (((at - home_of(table_[at].key)) & mask) >= ((at - gap) & mask)) {
        table_[gap] = table_[at];
        gap = at;
      }
    table_[gap] = {};
  }

  std::vector<chain> table_;
  std::size_t chains_ = 0;
};

}  // namespace tutti::detail
