#pragma once
#include <csignal>
#include <thread>
#include <utility>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Starts a thread of the library, which takes no signals: they must be handled by threads of the program. Throws
/// std::system_error if there can be no more threads.
template <class F>
std::thread library_thread(F run) {
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
  return std::thread{std::move(run)};
}

}  // namespace tutti::detail
