#pragma once
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/fd.hpp>

namespace tutti::detail {

/// Returns the path of the file in which each rank of a job locks the byte at its rank; tutti-run creates it beside the
/// file of the secret. Empty if there is none.
inline std::string file_of_places(const variable_lookup auto& get) {
  const std::string_view secret = get("TUTTI_SECRET_FILE").value_or("");
  return secret.ends_with("/secret") ? std::string{secret.substr(0, secret.rfind('/'))} + "/ranks" : "";
}

/// Locks a rank's place in its job for this process until the last copy of the result is destroyed. A program that a
/// rank starts inherits the rank's variables and would wait for a world that is complete; it finds the place locked.
/// Throws usage_error that names the process holding the place. Returns null if the file is missing or its file system
/// has no locks.
inline std::shared_ptr<os::fd> hold_place(const std::string& file, int rank) {
  static std::mutex mutex;
  static std::weak_ptr<os::fd> held;  // closing any descriptor of the file would release the lock
  static ::pid_t owner = 0;
  const std::scoped_lock guard(mutex);
  if (auto mine = held.lock(); mine && owner == ::getpid()) return mine;
  auto mine = std::make_shared<os::fd>(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock place{};
  place.l_type = F_WRLCK;
  place.l_whence = SEEK_SET;
  place.l_start = rank;
  place.l_len = 1;
  if (!*mine) return nullptr;
  if (::fcntl(mine->native(), F_SETLK, &place) == 0) {
    held = mine;
    owner = ::getpid();
    return mine;
  }
  const bool taken = errno == EAGAIN || errno == EACCES;
  if (!taken || ::fcntl(mine->native(), F_GETLK, &place) != 0 || place.l_type == F_UNLCK) return nullptr;
  throw usage_error(
      "rank " + std::to_string(rank) + " of this job is process " + std::to_string(place.l_pid) +
      (place.l_pid == ::getppid() ? ", which started this program and" : ", which") +
      " has joined its world already: a program that a rank starts inherits the rank's variables, but not "
      "its place; start it with a tutti-run of its own, or alone with env -u RANK -u WORLD_SIZE "
      "-u LOCAL_RANK -u LOCAL_WORLD_SIZE -u MASTER_ADDR -u TUTTI_RENDEZVOUS -u TUTTI_JOB");
}

}  // namespace tutti::detail
