#pragma once
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <system_error>

#include <tutti/core/status.hpp>

namespace tutti {

/// Error for a mistake of the caller that was found before anything was sent: a bad root, overlapping buffers, wrong
/// counts.
class usage_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The operation and the place at which an error occurred.
struct error_context {
  int rank = -1;                                        ///< this process's rank
  std::uint64_t sequence = 0;                           ///< number of the operation on its communicator, from 1
  const char* collective = "";                          ///< "all_reduce", …; empty outside of one
  std::source_location where = std::source_location{};  ///< the call site of the operation
};

/// A failure at run time. `what()` says what happened, to which rank and what to do. The first failure of a
/// communicator is sticky: every later operation on it fails at once with the same cause.
class error : public std::system_error {
 public:
  error(status s, const std::string& message, error_context c = {})
      : std::system_error(make_error_code(s.code), message), status_(s), context_(c), message_(message) {}

  [[nodiscard]] const char* what() const noexcept override { return message_.what(); }
  [[nodiscard]] errc kind() const noexcept { return status_.code; }
  [[nodiscard]] int peer() const noexcept { return status_.peer; }  ///< world rank at fault, -1 when unknown
  [[nodiscard]] int rank() const noexcept { return context_.rank; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return context_.sequence; }
  [[nodiscard]] const char* collective() const noexcept { return context_.collective; }
  [[nodiscard]] const std::source_location& where() const noexcept { return context_.where; }
  [[nodiscard]] const tutti::status& cause() const noexcept { return status_; }

 private:
  tutti::status status_;
  error_context context_;
  std::runtime_error message_;  // a string whose copy cannot throw; system_error::what() would append the code's name
};

}  // namespace tutti
