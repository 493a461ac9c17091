#pragma once
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include <tutti/core/error.hpp>

namespace tutti::os {

/// Returns the errc of an errno: out_of_resources for a lack of something, else system.
inline errc classify_errno(int error) noexcept {
  switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
      return errc::out_of_resources;
    default:
      return errc::system;
  }
}

/// Returns the meaning of an errno, and the remedy if one is known: "Too many open files (raise the limit: ulimit -n)".
inline std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (error == EMFILE) text += " (raise the limit: ulimit -n)";
  if (error == ENFILE) text += " (raise the limit: sysctl fs.file-max)";
  return text;
}

/// Throws tutti::error for a failed system call: `what`, the meaning of `error`, and the remedy if one is known.
[[noreturn]] inline void throw_errno(int error, const std::string& what) {
  throw tutti::error{{classify_errno(error), 0, -1, static_cast<std::uint64_t>(error)},
                     what + ": " + errno_text(error)};
}

}  // namespace tutti::os
