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

/// A small table of keys and values that all ranks see: the place where they find each other. Keys have 1 to 1024
/// bytes, values up to 1 MiB. A value that anybody may have written is untrusted input. One object is used by one
/// thread at a time, unless the store says otherwise.
///
/// - `set(key, value)` puts a value in place of whatever was there.
/// - `get(key, until)` waits for the key; throws error{timed_out} that names it.
/// - `try_get(key)` does not wait.
/// - `add(key, delta)` adds to a counter that starts at 0 and returns the sum; as a value it is 8 bytes, little-endian.
/// - `compare_set(key, expected, desired)` sets if the value is `expected` (empty: if there is none), and returns the
///   value that is in place afterwards, empty if none.
/// - `erase(key)` says whether there was one.
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
