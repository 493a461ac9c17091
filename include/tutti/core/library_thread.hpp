#pragma once
#include <csignal>
#include <thread>

#include <tutti/config.hpp>

namespace tutti::detail {

/// Starts a thread of the library that calls `run(of)`; see library_thread().
inline std::thread start_thread(void (*run)(void*), void* of) {
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
  return std::thread{run, of};
}

/// Starts a thread of the library that calls the member function `Run` of an object. It takes no signals: they must be
/// handled by threads of the program. Throws std::system_error if there can be no more threads.
template <auto Run, class T>
std::thread library_thread(T& of) {  // std::thread takes much to compile for each type that it is given
  return start_thread([](void* self) { (static_cast<T*>(self)->*Run)(); }, &of);
}

}  // namespace tutti::detail
