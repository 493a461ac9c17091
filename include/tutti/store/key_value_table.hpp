#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/store/store_limits.hpp>
#include <tutti/wire/bytes.hpp>
#include <tutti/wire/store_frame.hpp>

namespace tutti {

/// The table of keys and values that the stores use. Its size is limited: number of keys, and bytes of keys and values
/// together. One thread at a time uses it. Calls that change it return wire::store_answer::full if there is no room.
class key_value_table {
 public:
  using value_type = std::vector<std::byte>;

  key_value_table() = default;
  explicit key_value_table(store_limits limits) noexcept : limits_(limits) {}

  /// Returns the value of a key, valid until the table changes; null if the key does not exist.
  [[nodiscard]] const value_type* find(std::string_view key) const noexcept {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : &at->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Returns true if there is room for set() of a value of this size.
  [[nodiscard]] bool fits(std::string_view key, std::size_t value_bytes) const noexcept {
    const value_type* v = find(key);
    if (v == nullptr && entries_.size() >= limits_.keys) return false;
    const std::size_t before = v == nullptr ? 0 : key.size() + v->size();
    return bytes_ - before + key.size() + value_bytes <= limits_.bytes;
  }

  /// Stores a copy of the value, in place of the one stored before.
  [[nodiscard]] wire::store_answer set(std::string_view key, std::span<const std::byte> value) {
    if (!fits(key, value.size())) return wire::store_answer::full;
    const auto at = entries_.find(key);
    if (at == entries_.end()) {
      entries_.emplace(key, value_type(value.data(), value.data() + value.size()));
      bytes_ += key.size() + value.size();
    } else {
      const std::size_t before = at->second.size();
      at->second.assign(value.data(), value.data() + value.size());
      bytes_ += value.size() - before;
    }
    return wire::store_answer::ok;
  }

  /// Adds to the counter `key`, which starts at 0, and writes the sum to `total`. Returns `not_a_number` if the value
  /// has not 8 bytes.
  [[nodiscard]] wire::store_answer add(std::string_view key, std::int64_t delta, std::int64_t& total) {
    std::uint64_t now = 0;
    if (const value_type* v = find(key)) {
      if (v->size() != sizeof now) return wire::store_answer::not_a_number;
      now = wire::byte_reader{*v}.u64();
    }
    now += static_cast<std::uint64_t>(delta);  // unsigned, so that overflow wraps around
    std::array<std::byte, sizeof now> bytes{};
    wire::byte_writer{bytes}.u64(now);
    total = static_cast<std::int64_t>(now);
    return set(key, bytes);
  }

  /// Stores `desired` if the value is `expected`, or if the key does not exist and `expected` is empty. Returns `ok` if
  /// the key exists afterwards, changed or not, and `absent` if it does not.
  [[nodiscard]] wire::store_answer compare_set(std::string_view key, std::span<const std::byte> expected,
                                               std::span<const std::byte> desired) {
    const value_type* v = find(key);
    if (v == nullptr) return expected.empty() ? set(key, desired) : wire::store_answer::absent;
    const bool equal = v->size() == expected.size() && std::equal(v->begin(), v->end(), expected.begin());
    return equal && !expected.empty() ? set(key, desired) : wire::store_answer::ok;
  }

  /// Removes a key; returns true if it existed.
  bool erase(std::string_view key) noexcept {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return false;
    bytes_ -= at->first.size() + at->second.size();
    entries_.erase(at);
    return true;
  }

 private:
  struct by_text {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept { return a < b; }
  };

  store_limits limits_;
  std::map<std::string, value_type, by_text> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace tutti
