#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// Where the ranks of one job meet.
struct rendezvous_point {
  std::string job;                 ///< 128 random bits, as 32 hexadecimal digits; may be empty between machines
  std::string url;                 ///< rank 0 listens there
  std::string host = "127.0.0.1";  ///< MASTER_ADDR
  std::uint16_t port = 0;          ///< was free a moment ago; for programs that make their own server on MASTER_PORT
};

/// Returns 128 random bits, as 32 hexadecimal digits.
std::string random_name();
/// Returns 32 random bytes.
std::string random_secret();

/// Returns a port of this machine that is free, for all its addresses, and outside of the range from which the kernel
/// gives ports to outgoing connections.
std::uint16_t free_network_port();

/// Returns a new rendezvous point of ranks that are all on this machine: at an abstract Unix socket.
rendezvous_point make_rendezvous();

/// The job's secret in a file that only this user can read, in a folder of its own, which ends with this object. A
/// file, because programs between the launcher and a rank (a shell script, Python's subprocess) close descriptors or
/// use their numbers for something else. Guard and supervisor each have the object, so one that is killed leaves no
/// file; the file is locked as long as the supervisor lives, by which a later job knows one that both have left.
class secret_file {
 public:
  /// Chooses a name; there is no file yet.
  secret_file();
  secret_file(const secret_file&) = delete;
  secret_file& operator=(const secret_file&) = delete;
  /// Removes what this process, or its child by the same name, has made.
  ~secret_file();

  /// Makes the file in TMPDIR, /tmp, XDG_RUNTIME_DIR or /dev/shm, the first that takes it, and removes files there that
  /// nobody has locked any more. Returns its path, which is empty when none takes it: ranks then do without.
  std::string make(std::string_view secret);

 private:
  std::string name_;
  unique_fd locked_;
};

}  // namespace tutti::launch
