#pragma once
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

/// Real processes for tests: each runs a program with an environment of its own. None outlives its `processes`.
namespace tutti_test {

/// A helper program, from tests/process/programs.
inline std::string program(const std::string& name) {
#ifdef TUTTI_PROGRAM_DIR
  return TUTTI_PROGRAM_DIR "/tutti_program_" + name;
#else
  const char* folder = std::getenv("TUTTI_PROGRAM_DIR");
  return std::string(folder ? folder : ".") + "/tutti_program_" + name;
#endif
}

inline std::string tutti_run() {
#ifdef TUTTI_TOOL_DIR
  return TUTTI_TOOL_DIR "/tutti-run";
#else
  const char* folder = std::getenv("TUTTI_TOOL_DIR");
  return std::string(folder ? folder : ".") + "/tutti-run";
#endif
}

struct command {
  std::string program;
  std::vector<std::string> arguments;
  /// NAME=VALUE, beside PATH, HOME, TMPDIR, TUTTI_TEST_GRID and the sanitizers' options.
  std::vector<std::string> environment;
};

class processes {
 public:
  struct report {
    int status = -1;  ///< as a shell shows it: 128 + number after a signal
    std::string out;  ///< stdout and stderr
  };

  processes() = default;
  processes(const processes&) = delete;
  processes& operator=(const processes&) = delete;
  ~processes() {
    for (std::size_t i = 0; i < running_.size(); ++i) signal(i, SIGKILL);
    for (child& c : running_) reap(c);
  }

  std::size_t start(const command& what) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    std::vector<std::string> environment = base_environment();
    environment.insert(environment.end(), what.environment.begin(), what.environment.end());
    environment.push_back(marker());
    std::vector<std::string> arguments{what.program};
    arguments.insert(arguments.end(), what.arguments.begin(), what.arguments.end());
    const auto environment_pointers = pointers(environment), argument_pointers = pointers(arguments);
    const ::pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);  // what the test itself has inherited
      ::execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
      ::_exit(99);
    }
    ::close(ends[1]);
    running_.push_back({pid, ends[0], {}, -1});
    return running_.size() - 1;
  }

  [[nodiscard]] ::pid_t pid(std::size_t i) const { return running_.at(i).pid; }
  [[nodiscard]] std::size_t size() const noexcept { return running_.size(); }
  [[nodiscard]] const std::string& out(std::size_t i) const { return running_.at(i).out; }
  void signal(std::size_t i, int number) const {
    if (running_.at(i).pid > 0) ::kill(running_[i].pid, number);
  }

  /// Reads until process `i` has written `text`; false when it ended or the time was up first.
  bool await(std::size_t i, std::string_view text, std::chrono::seconds limit = std::chrono::seconds{60}) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (running_.at(i).out.find(text) == std::string::npos)
      if (running_[i].pipe < 0 || !read_some(until)) return running_[i].out.find(text) != std::string::npos;
    return true;
  }

  /// Waits until all have ended. Throws when they do not, with what they have said.
  std::vector<report> wait(std::chrono::seconds limit = std::chrono::seconds{60}) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (std::any_of(running_.begin(), running_.end(), [](const child& c) { return c.pipe >= 0; })) {
      if (read_some(until)) continue;
      std::string text = "processes do not end:";
      for (const child& c : running_)
        text += "\n[pid " + std::to_string(c.pid) + (c.pipe >= 0 ? ", runs] " : ", done] ") + c.out;
      throw std::runtime_error(text);
    }
    std::vector<report> reports;
    for (child& c : running_) {
      reap(c);
      reports.push_back({c.status, c.out});
    }
    return reports;
  }

  /// Processes that descend from any test of this program and still run, zombies left out.
  [[nodiscard]] static std::vector<::pid_t> survivors() {
    std::vector<::pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto pid = static_cast<::pid_t>(std::atoi(entry.path().filename().c_str()));
      if (pid <= 0 || pid == ::getpid()) continue;
      std::ifstream file{entry.path() / "environ", std::ios::binary};
      const std::string environment{std::istreambuf_iterator<char>{file}, {}};
      if (environment.find(marker()) != std::string::npos) found.push_back(pid);
    }
    return found;
  }

 private:
  struct child {
    ::pid_t pid = 0;
    int pipe = -1;
    std::string out;
    int status = -1;
  };

  static const std::string& marker() {
    static const std::string text =
        "TEST_PROCESS_OF=" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}());
    return text;
  }

  static std::vector<std::string> base_environment() {
    std::vector<std::string> variables;
    for (const char* name : {"PATH", "HOME", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
                             "ASAN_SYMBOLIZER_PATH", "TSAN_SYMBOLIZER_PATH", "TUTTI_TEST_GRID"})
      if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
    return variables;
  }
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& s : strings) result.push_back(s.data());
    result.push_back(nullptr);
    return result;
  }

  static void reap(child& c) noexcept {
    if (c.pipe >= 0) ::close(c.pipe);
    c.pipe = -1;
    if (c.pid <= 0) return;
    int status = 0;
    while (::waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {
    }
    c.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    c.pid = 0;
  }

  bool read_some(std::chrono::steady_clock::time_point until) {
    std::vector<pollfd> watched;
    for (const child& c : running_) watched.push_back({c.pipe, POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0 || ::poll(watched.data(), watched.size(), static_cast<int>(left)) <= 0) return false;
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      std::array<char, 65536> some;
      const auto n = ::read(watched[i].fd, some.data(), some.size());
      if (n > 0) {
        running_[i].out.append(some.data(), static_cast<std::size_t>(n));
      } else {
        ::close(watched[i].fd);
        running_[i].pipe = -1;
      }
    }
    return true;
  }

  std::vector<child> running_;
};

}  // namespace tutti_test
