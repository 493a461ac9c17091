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

/// The table behind the stores: bounded, in memory, for one thread at a time.
class key_value_table {
 public:
  using value_type = std::vector<std::byte>;

  key_value_table() = default;
  explicit key_value_table(store_limits limits) noexcept : limits_(limits) {}

  [[nodiscard]] const value_type* find(std::string_view key) const noexcept {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : &at->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Whether set() would find room.
  [[nodiscard]] bool fits(std::string_view key, std::size_t value_bytes) const noexcept {
    const value_type* v = find(key);
    if (v == nullptr && entries_.size() >= limits_.keys) return false;
    const std::size_t before = v == nullptr ? 0 : key.size() + v->size();
    return bytes_ - before + key.size() + value_bytes <= limits_.bytes;
  }

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

  /// Adds to the counter `key` and puts the sum into `total`.
  [[nodiscard]] wire::store_answer add(std::string_view key, std::int64_t delta, std::int64_t& total) {
    std::uint64_t now = 0;
    if (const value_type* v = find(key)) {
      if (v->size() != sizeof now) return wire::store_answer::not_a_number;
      now = wire::byte_reader{*v}.u64();
    }
    now += static_cast<std::uint64_t>(delta);  // wraps around, as unsigned numbers do
    std::array<std::byte, sizeof now> bytes{};
    wire::byte_writer{bytes}.u64(now);
    total = static_cast<std::int64_t>(now);
    return set(key, bytes);
  }

  /// Sets if the value is `expected`, or if there is none and `expected` is empty. `absent` when there is still none.
  [[nodiscard]] wire::store_answer compare_set(std::string_view key, std::span<const std::byte> expected,
                                               std::span<const std::byte> desired) {
    const value_type* v = find(key);
    if (v == nullptr) return expected.empty() ? set(key, desired) : wire::store_answer::absent;
    const bool equal = v->size() == expected.size() && std::equal(v->begin(), v->end(), expected.begin());
    return equal && !expected.empty() ? set(key, desired) : wire::store_answer::ok;
  }

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
