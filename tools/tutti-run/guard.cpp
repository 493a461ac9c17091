#include "tutti-run/guard.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <charconv>
#include <string_view>

#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/rendezvous.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {
namespace {

constexpr int lifeline_number = 3;

// A pipe of ours must never become somebody's stdout because that was closed.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) check(::open("/dev/null", O_RDWR), "open /dev/null");
}

// A job in the background must not take input from the shell in front. The supervisor's session has no terminal, so
// the kernel's own check does not apply there.
void leave_input_to_the_foreground() {
  const pid_t front = ::tcgetpgrp(STDIN_FILENO);
  if (front <= 0 || front == ::getpgrp()) return;
  const unique_fd nothing{check(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open /dev/null")};
  check(::dup2(nothing.value(), STDIN_FILENO), "redirect stdin");
}

void become_subreaper() { check(::prctl(PR_SET_CHILD_SUBREAPER, 1), "become a subreaper"); }

// Stops as the terminal asked; the default action knows when nobody could ever continue us.
void suspend() noexcept {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
}

void close_from(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0U) == 0) return;
  DIR* folder = ::opendir("/proc/self/fd");  // kernels before 5.9, and sandboxes that do not know the call
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= first && fd != ::dirfd(folder)) ::close(fd);
  }
  ::closedir(folder);
}

int supervise(const supervision& work, const signal_state& signals, secret_file& secret, unique_fd lifeline) {
  check(::setsid(), "begin a session");
  ::prctl(PR_SET_NAME, "tutti-keeper");  // `killall -9 tutti-run` then leaves someone to clean up
  become_subreaper();
  // What the caller left open is not ours to keep, least of all if we outlive the guard.
  check(::dup2(lifeline.value(), lifeline_number), "keep the lifeline");
  lifeline.reset();
  close_from(lifeline_number + 1);
  unique_fd kept{lifeline_number};
  check(::fcntl(kept.value(), F_SETFD, FD_CLOEXEC), "keep the lifeline from the ranks");
  return work({signals, secret, kept});
}

int end_of_supervisor(const siginfo_t& how, std::span<const pid_t> strangers) {
  if (how.si_code == CLD_EXITED) return how.si_status;
  kill_descendants(clock::now() + std::chrono::seconds{10}, strangers);
  throw failure(128 + how.si_status, text("the supervising process was killed by ", signal_name(how.si_status),
                                          "; the ranks were killed too"));
}

int guard(pid_t supervisor, const unique_fd& lifeline, const signal_state& signals, std::span<const pid_t> strangers) {
  for (;;) {
    siginfo_t from{};
    int signal = ::sigwaitinfo(&signals.taken, &from);
    if (signal < 0) continue;
    if (signal == SIGQUIT && from.si_code == SI_KERNEL) signal = status_key;
    if (signal != SIGCHLD) {
      ::send(lifeline.value(), &signal, sizeof signal, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (signal == SIGTSTP) suspend();
      continue;
    }
    siginfo_t how{};
    check(::waitid(P_PID, static_cast<id_t>(supervisor), &how, WEXITED | WNOHANG), "wait for the supervising process");
    if (how.si_pid == supervisor) return end_of_supervisor(how, strangers);
  }
}

// Children that came with us, as in `helper & exec tutti-run`, are none of the job's.
std::vector<pid_t> children_at_start() {
  std::vector<pid_t> found;
  if (has_children())
    for (const auto& process : descendants()) found.push_back(process.pid);
  return found;
}

}  // namespace

int run_guarded(const supervision& work) {
  open_standard_streams();
  leave_input_to_the_foreground();
  const signal_state signals = take_signals();
  const auto strangers = children_at_start();
  become_subreaper();
  secret_file secret;
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "make a socket pair");
  unique_fd lifeline{ends[0]};
  unique_fd far_end{ends[1]};
  const pid_t supervisor = check(::fork(), "start the supervising process");
  if (supervisor == 0) {
    lifeline.reset();
    return supervise(work, signals, secret, std::move(far_end));
  }
  far_end.reset();
  return guard(supervisor, lifeline, signals, strangers);
}

}  // namespace tutti::launch
