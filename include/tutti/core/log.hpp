#pragma once
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti {

/// Severity of a log record: after a `warning` results are right; an `error` is one that no exception can report.
enum class log_level : std::uint8_t { warning, error };

/// One message of the library, without a line end. `message` is valid during the call of the handler only.
struct log_record {
  log_level level;
  std::string_view message;
};

/// Receives log records, on the thread on which they arise and maybe inside a destructor, with locks of the library
/// held: it must not call tutti, block for long, or throw (std::terminate). Several threads may call it at a time.
using log_handler = void (*)(const log_record&) noexcept;

/// Writes "tutti: error: message" as one line to standard error; the handler unless another one is set.
inline void log_to_stderr(const log_record& r) noexcept try {
  std::string line = r.level == log_level::error ? "tutti: error: " : "tutti: warning: ";
  line.append(r.message).append("\n");
  // One call, so that lines of several ranks do not mix. There is nobody to tell that it failed.
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
} catch (const std::exception&) {  // out of memory
}

namespace detail {

inline std::atomic<log_handler> current_log_handler{&log_to_stderr};

/// Passes a record to the handler.
inline void log(log_level level, std::string_view message) noexcept {
  current_log_handler.load(std::memory_order_acquire)({level, message});
}

}  // namespace detail

/// Sets the handler for the log records of this process and returns the one before; null stands for log_to_stderr. Any
/// thread, at any time; a call of the former handler may still be under way when this returns.
inline log_handler set_log_handler(log_handler to) noexcept {
  return detail::current_log_handler.exchange(to ? to : &log_to_stderr, std::memory_order_acq_rel);
}

}  // namespace tutti
