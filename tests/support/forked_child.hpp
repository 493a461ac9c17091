#pragma once
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti_test {

/// Runs `body` (returning an exit code) in a child made by fork(); kills and reaps it when destroyed. The child must
/// start no threads: the thread sanitizer does not allow that after fork().
class forked_child {
 public:
  static constexpr int threw = 112;

  template <class Body>
  explicit forked_child(Body&& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = threw;
    try {
      code = std::forward<Body>(body)();
    } catch (...) {
    }
    ::_exit(code);
  }
  forked_child(forked_child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  forked_child(const forked_child&) = delete;
  ~forked_child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }

  [[nodiscard]] ::pid_t pid() const noexcept { return pid_; }
  void signal(int number) const noexcept { ::kill(pid_, number); }

  /// Waits for the end: the exit code, or minus the signal.
  int wait() noexcept {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  ::pid_t pid_;
};

/// Runs `body` in a child made by fork() to its end. Returns its exit code, or minus the signal that ended it.
template <class Body>
int in_child(Body&& body) {
  return forked_child{std::forward<Body>(body)}.wait();
}

}  // namespace tutti_test
