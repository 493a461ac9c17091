#pragma once
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/text.hpp>
#include <tutti/wire/store_frame.hpp>

namespace tutti::detail {

/// Throws usage_error unless a key has 1 to 1024 bytes.
inline void check_key(std::string_view key) {
  if (!key.empty() && key.size() <= wire::max_key_bytes) return;
  throw usage_error{"a key of a store has 1 to " + std::to_string(wire::max_key_bytes) + " bytes, not " +
                    std::to_string(key.size())};
}

/// Throws usage_error for a key or a value, of more than 1 MiB, that no store takes.
inline void check_entry(std::string_view key, std::span<const std::byte> value) {
  check_key(key);
  if (value.size() <= wire::max_value_bytes) return;
  throw usage_error{"the value of " + quoted(key) + " has " + std::to_string(value.size()) + " bytes; a store takes " +
                    std::to_string(wire::max_value_bytes)};
}

/// Throws the error{timed_out} of a get() that began at `since`; its message ends with `details`.
[[noreturn]] inline void throw_get_timed_out(std::string_view key, clock::time_point since,
                                             const std::string& details) {
  throw error{{errc::timed_out},
              "waiting for the key " + quoted(key) + " timed out after " + in_seconds(clock::now() - since) +
                  ": no rank has set it" + details};
}

/// Throws the error that an answer stands for; `ok` and `absent` are none.
inline void throw_unless_done(wire::store_answer answer, std::string_view key) {
  if (answer == wire::store_answer::not_a_number) {
    throw usage_error{"add() on " + quoted(key) + ": its value is not a counter (8 bytes)"};
  }
  if (answer == wire::store_answer::full) {
    throw error{{errc::out_of_resources},
                "the store is full: it takes no further " + quoted(key) + "; erase keys that are no longer needed"};
  }
}

}  // namespace tutti::detail
