#include "tutti-run/signals.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "tutti-run/posix.hpp"

namespace tutti::launch {
namespace {

constexpr std::array taken{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGUSR1, SIGUSR2};

bool is_ignored(int number) noexcept {
  struct sigaction action{};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

signal_state take_signals() {
  // An ignored SIGCHLD would let the kernel discard exit statuses. A write to a reader that left is reported by EPIPE.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  signal_state state{};
  ::sigemptyset(&state.taken);
  ::sigaddset(&state.taken, SIGCHLD);
  for (const int number : taken)
    if (!is_ignored(number)) ::sigaddset(&state.taken, number);
  check(::sigprocmask(SIG_BLOCK, &state.taken, &state.mask_at_start), "block signals");
  return state;
}

void restore_signals(const signal_state& state) noexcept {
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &state.mask_at_start, nullptr);
}

std::string signal_name(int number) {
  using namespace std::string_view_literals;
  static constexpr std::array names{
      std::pair{SIGHUP, "SIGHUP"sv},   std::pair{SIGINT, "SIGINT"sv},   std::pair{SIGQUIT, "SIGQUIT"sv},
      std::pair{SIGILL, "SIGILL"sv},   std::pair{SIGTRAP, "SIGTRAP"sv}, std::pair{SIGABRT, "SIGABRT"sv},
      std::pair{SIGBUS, "SIGBUS"sv},   std::pair{SIGFPE, "SIGFPE"sv},   std::pair{SIGKILL, "SIGKILL"sv},
      std::pair{SIGUSR1, "SIGUSR1"sv}, std::pair{SIGSEGV, "SIGSEGV"sv}, std::pair{SIGUSR2, "SIGUSR2"sv},
      std::pair{SIGPIPE, "SIGPIPE"sv}, std::pair{SIGALRM, "SIGALRM"sv}, std::pair{SIGTERM, "SIGTERM"sv},
      std::pair{SIGXCPU, "SIGXCPU"sv}, std::pair{SIGXFSZ, "SIGXFSZ"sv}, std::pair{SIGSYS, "SIGSYS"sv}};
  for (const auto& [known, name] : names)
    if (known == number) return std::string{name};
  return text("signal ", number);
}

}  // namespace tutti::launch
