#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/os/peer_credentials.hpp>
#include <tutti/os/socket.hpp>

namespace tutti::detail {

/// Returns the name of the abstract socket at which a rank of the job that meets at `rendezvous` listens.
inline os::endpoint socket_of_place(std::string_view rendezvous, int rank) {
  const std::uint64_t job = fnv(fnv_start, rendezvous);
  return os::endpoint::unix_socket("@tutti-place-" + std::to_string(job) + "-" + std::to_string(rank));
}

/// Takes a rank's place in its job for this process until the last copy of the result is destroyed. A program that a
/// rank starts inherits the rank's variables and would wait for a world that is complete; it finds the place taken.
/// `rendezvous` must belong to one job of this machine. Throws usage_error that names the process holding the place.
/// Returns null if no socket can be made or another user has its name. The socket's queue is never read: a few thousand
/// refused processes fill it, and later ones get null.
inline std::shared_ptr<os::fd> hold_place(std::string_view rendezvous, int rank) {
  static std::mutex mutex;
  static std::weak_ptr<os::fd> held;
  static ::pid_t owner = 0;
  const std::scoped_lock guard(mutex);
  const os::endpoint where = socket_of_place(rendezvous, rank);
  if (auto mine = held.lock(); mine && owner == ::getpid() && os::local_endpoint(mine->native()) == where) return mine;
  try {
    auto mine = std::make_shared<os::fd>(os::listen_on(where));
    mine->end_in_children();
    held = mine;
    owner = ::getpid();
    return mine;
  } catch (const error&) {  // taken, or no descriptor is left
  }
  const os::socket_result asked = os::start_connect(where);
  const auto holder = asked.socket ? os::peer_credentials(asked.socket.native()) : os::credentials{};
  if (!holder || holder.uid != ::geteuid() || holder.pid == ::getpid()) return nullptr;
  throw usage_error("rank " + std::to_string(rank) + " of this job is " +
                    (holder.pid == 0 ? "another process" : "process " + std::to_string(holder.pid)) +
                    (holder.pid == ::getppid() ? ", which started this program and" : ", which") +
                    " has joined its world already: a program that a rank starts inherits the rank's variables, but "
                    "not its place; start it with a tutti-run of its own (tutti-run -n 1 where it is alone), or let it "
                    "call init() with init_options::rank = 0 and world_size = 1");
}

}  // namespace tutti::detail
