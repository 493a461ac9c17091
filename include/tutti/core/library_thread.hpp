#pragma once
#include <csignal>
#include <thread>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Starts a thread of the library that calls `run(of)`. It takes no signals: they must be handled by threads of the
/// program. `of` must outlive the thread. Throws std::system_error if there can be no more threads.
inline std::thread library_thread(void (*run)(void*), void* of) {
  struct without_signals {
    sigset_t before;
    without_signals() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    without_signals(const without_signals&) = delete;
    ~without_signals() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } const for_now;
  return std::thread{run, of};  // no lambdas here: std::thread takes much to compile for each type it is given
}

}  // namespace tutti::detail
