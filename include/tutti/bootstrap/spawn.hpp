#pragma once
#include <chrono>
#include <concepts>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <tutti/bootstrap/options.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>

namespace tutti {

/// Options of spawn().
struct spawn_options {
  init_options init = {};                     ///< as for init(), without rank, world_size and rendezvous
  duration settle = std::chrono::seconds{1};  ///< time for the other ranks to end by themselves after a failure
  duration grace = std::chrono::seconds{5};   ///< time from SIGTERM to SIGKILL for those that have not
  std::vector<std::string> arguments = {};    ///< command line of the ranks, less the program; else this process's
};

/// Error for a process of spawn() that ended before its function had returned: by a signal, or by exit().
class spawn_error : public error {
 public:
  spawn_error(int rank, int signal, int exit_code, const std::string& message)
      : error(status::lost(rank, loss::died), message, {rank}), signal_(signal), exit_code_(exit_code) {}

  [[nodiscard]] int signal() const noexcept { return signal_; }        ///< 0 if it was none
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }  ///< 0 after a signal

 private:
  int signal_;
  int exit_code_;
};

namespace detail {

/// Function of a rank, without its type. std::function takes much to compile.
template <class Backend>
struct rank_function {
  void (*call)(void* f, communicator<Backend>& world);
  void* f;
};

template <class Backend>
void spawn_ranks(int size, const std::source_location& where, const spawn_options& options, rank_function<Backend> f);

}  // namespace detail

/// Runs `f(world)` in `size` processes of this machine, each a rank, and returns when all have ended.
///
/// Each process runs this program again, with the same arguments, up to this call of spawn(); there it runs `f` instead
/// and ends by std::exit(). `f` and its captures are thus made anew in each rank: main() must come here in the same way
/// each time, and calls of spawn() that came before return or throw there as they did here. Threads, locks and devices
/// of this process are not inherited (docs/design/bootstrap.md). Rank 0 reads stdin.
///
/// Errors: the first exception of a rank that no other rank caused: usage_error or error as thrown there, another type
/// as error{aborted}, its text after "rank 2 of 4"; spawn_error for a process that a signal or exit() ended;
/// error{timed_out} for ranks that do not come to this call within join_timeout. The other ranks are ended. If this
/// process or this thread dies, the kernel kills the ranks.
template <std::invocable<communicator<host>&> F>
void spawn(int size, F f, const spawn_options& options = {},
           std::source_location where = std::source_location::current()) {
  detail::spawn_ranks<host>(
      size, where, options,
      {[](void* own, communicator<host>& world) { (*static_cast<F*>(own))(world); }, std::addressof(f)});
}

}  // namespace tutti

#if defined(TUTTI_SEPARATE_COMPILATION)
namespace tutti {
extern template void detail::spawn_ranks<host>(int, const std::source_location&, const spawn_options&,
                                               detail::rank_function<host>);
}  // namespace tutti
#else
#include <tutti/impl/bootstrap/spawn.hpp>
#endif
