#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tutti/transport/messaging/tag.hpp>

namespace tutti::detail {

/// Base class of the elements of by_operation, which are messages or receives: the links of a doubly linked list.
template <class T>
class chained {
  template <class>
  friend class by_operation;
  T* next_of_operation_ = nullptr;
  T* previous_of_operation_ = nullptr;
};

/// Index of messages by tag, in order of arrival. It is a hash table with one chain for each operation that has
/// messages, or for each tag of user messages, so that finding a chain takes constant time, however many operations are
/// in flight. It owns no element: one must be removed before it is destroyed. `T` derives from chained<T>, and
/// `tag_of(t)` returns the tag of an element.
template <class T>
class by_operation {
 public:
  [[nodiscard]] bool empty() const noexcept { return chains_ == 0; }

  /// Appends an element to the chain of its operation. Throws bad_alloc, and then leaves the index unchanged.
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
  /// Removes an element that is in the index.
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

  /// Returns the first element of the operation that `tag` belongs to, or the first user message with exactly this tag;
  /// null if there is none.
  [[nodiscard]] T* first(std::uint64_t tag) const noexcept {
    return chains_ == 0 ? nullptr : table_[place_of(key_of(tag))].first;
  }
  /// Returns the next element of the same chain, or null.
  static T* after(const T& t) noexcept { return static_cast<const chained<T>&>(t).next_of_operation_; }
  /// Returns the nth element with exactly this tag, counted from 0; null if there are fewer.
  [[nodiscard]] T* find(std::uint64_t tag, std::size_t nth = 0) const noexcept {
    for (T* t = first(tag); t; t = after(*t))
      if (tag_of(*t) == tag && nth-- == 0) return t;
    return nullptr;
  }
  /// Returns the number of elements with exactly this tag.
  [[nodiscard]] std::size_t number_of(std::uint64_t tag) const noexcept {
    std::size_t n = 0;
    for (const T* t = first(tag); t; t = after(*t)) n += tag_of(*t) == tag ? 1U : 0U;
    return n;
  }

 private:
  struct chain {
    std::uint64_t key = 0;
    T* first = nullptr;  // null in a free place of the table
    T* last = nullptr;
  };

  // A user tag, which has bit 48 set, is its own key. Otherwise the upper 40 bits, context and sequence number, name
  // the operation.
  static constexpr std::uint64_t key_of(std::uint64_t t) noexcept { return tag::is_point_to_point(t) ? t : t >> 24; }
  [[nodiscard]] std::size_t home_of(std::uint64_t key) const noexcept {
    return ((key * 0x9e3779b97f4a7c15U) >> 32) & (table_.size() - 1);
  }
  /// Returns the place of the chain with this key, or the free place where it belongs (linear probing).
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
  /// Moves chains behind a place that has become free forward, so that linear probing still finds them.
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
