#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <tutti/core/deadline.hpp>

namespace tutti {

/// A small key-value table that all ranks share, through which they find each other. Keys have 1 to 1024 bytes, values
/// 0 to 1 MiB; others throw usage_error. Values written by other processes are untrusted input. One thread at a time
/// uses an object, unless the store says otherwise. Throws error{out_of_resources} if the store is full.
///
/// - `set(key, value)` stores a value, in place of the one stored before.
/// - `get(key, until)` waits for the key and returns its value; throws error{timed_out} with the name of the key.
/// - `try_get(key)` returns the value, or nothing if the key does not exist. Does not wait for it.
/// - `add(key, delta)` adds to a counter, which starts at 0, and returns the sum. The counter's value has 8 bytes,
///   little-endian; throws usage_error if the value has another size.
/// - `compare_set(key, expected, desired)` stores `desired` if the value is `expected`, or if `expected` is empty and
///   the key does not exist. Returns the value afterwards; empty if there is none.
/// - `erase(key)` removes the key; returns true if it existed.
template <class S>
concept store =
    requires(S& s, std::string_view key, std::span<const std::byte> value, std::int64_t delta, deadline until) {
      s.set(key, value);
      { s.get(key, until) } -> std::same_as<std::vector<std::byte>>;
      { s.try_get(key) } -> std::same_as<std::optional<std::vector<std::byte>>>;
      { s.add(key, delta) } -> std::same_as<std::int64_t>;
      { s.compare_set(key, value, value) } -> std::same_as<std::vector<std::byte>>;
      { s.erase(key) } -> std::same_as<bool>;
    };

}  // namespace tutti
