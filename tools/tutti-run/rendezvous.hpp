#pragma once

#include <cstdint>
#include <string>

#include "posix.hpp"

namespace tutti::launch {

/// Where the ranks of one job meet, and what proves that they belong to it.
struct rendezvous {
  std::string job;         ///< 128 random bits, as 32 hexadecimal digits
  std::string name;        ///< abstract Unix socket name, without the leading zero byte
  unique_fd listener;      ///< already listening, so that no rank is ever early
  unique_fd secret;        ///< sealed memory with 32 random bytes
  std::uint16_t port = 0;  ///< was free a moment ago; for programs that make their own server on MASTER_PORT
};

rendezvous make_rendezvous();

/// A second, read-only descriptor of the secret with a file position of its own; -1 and errno on failure.
int reopen_read_only(int secret) noexcept;

}  // namespace tutti::launch
