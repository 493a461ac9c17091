#pragma once

#include <cstdint>
#include <string>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// Where the ranks of one job meet.
struct rendezvous {
  std::string job;         ///< 128 random bits, as 32 hexadecimal digits
  std::string name;        ///< abstract Unix socket name, without the leading zero byte; rank 0 listens there
  std::uint16_t port = 0;  ///< was free a moment ago; for programs that make their own server on MASTER_PORT
};

rendezvous make_rendezvous();

/// 32 random bytes in a file that only this user can read, in a folder of its own, which ends with this object. A file,
/// because programs between the launcher and a rank (a shell script, Python's subprocess) close descriptors or use
/// their numbers for something else. Guard and supervisor each have the object, so one that is killed leaves no file.
/// Beside it is an empty file, `ranks`, in which a rank locks a byte as long as its world lives.
class secret_file {
 public:
  /// Chooses a name; there is no file yet.
  secret_file();
  secret_file(const secret_file&) = delete;
  secret_file& operator=(const secret_file&) = delete;
  /// Removes what this process, or its child by the same name, has made.
  ~secret_file();

  /// Makes the file in TMPDIR, /tmp, XDG_RUNTIME_DIR or /dev/shm, the first that takes it. Returns its path, which is
  /// empty when none does: ranks then do without.
  std::string make() const;

 private:
  std::string name_;
};

}  // namespace tutti::launch
