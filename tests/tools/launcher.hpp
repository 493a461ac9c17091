#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary_directory.hpp"

/// Runs tutti-run in real processes.
namespace tutti_test::launcher {

inline std::string program() {
#ifdef TUTTI_TOOL_DIR
  return TUTTI_TOOL_DIR "/tutti-run";
#else
  const char* named = std::getenv("TUTTI_RUN");
  return named ? named : "tutti-run";
#endif
}

inline std::chrono::steady_clock::time_point deadline() {
  return std::chrono::steady_clock::now() + std::chrono::seconds{60};
}

/// Waits for something that must come true; the deadline is only there so that a broken program fails instead of hangs.
inline bool eventually(const std::function<bool()>& holds) {
  for (const auto end = deadline(); !holds();) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return true;
}

/// Whether a process still does anything; a zombie does not.
inline bool is_alive(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] != 'Z' &&
         line[name_end + 2] != 'X';
}

struct result {
  int status = -1;  ///< as a shell shows it
  std::string out;
  std::string err;
};

/// One tutti-run, killed at the end of the scope if it still runs.
class job {
 public:
  using hook = std::function<void()>;

  /// `before_exec` runs in the new process; there, stdin is /dev/null unless it says otherwise.
  explicit job(std::vector<std::string> arguments, const hook& before_exec = {}) {
    arguments.insert(arguments.begin(), program());
    std::array<std::array<int, 2>, 2> pipes{};
    for (auto& both : pipes)
      if (::pipe2(both.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(STDIN_FILENO);
      ::open("/dev/null", O_RDONLY);
      ::dup2(pipes[0][1], 1);
      ::dup2(pipes[1][1], 2);
      if (before_exec) before_exec();
      ::execv(pointers[0], pointers.data());
      ::_exit(99);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      ::close(pipes[i][1]);
      streams_[i] = pipes[i][0];
    }
  }
  job(const job&) = delete;
  job& operator=(const job&) = delete;
  ~job() {
    for (std::size_t i = 0; i < 2; ++i) close_stream(i);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  const std::string& out() const noexcept { return texts_[0]; }
  const std::string& err() const noexcept { return texts_[1]; }

  /// Reads until stdout (or stderr) holds `count` times what is looked for.
  void await(std::string_view looked_for, int count = 1) {
    const auto end = deadline();
    while (occurrences(out(), looked_for) + occurrences(err(), looked_for) < count) {
      const bool more = read_some(end);
      REQUIRE_MESSAGE(more, "waiting for '" << std::string{looked_for} << "', got: " << out() << err());
    }
  }

  result wait() {
    for (const auto end = deadline(); streams_[0] >= 0 || streams_[1] >= 0;)
      REQUIRE_MESSAGE(read_some(end), "tutti-run does not end; so far: " << out() << err());
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), texts_[0], texts_[1]};
  }

  void close_stream(std::size_t which) {
    if (streams_[which] >= 0) ::close(streams_[which]);
    streams_[which] = -1;
  }

  static int occurrences(std::string_view text, std::string_view part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++found;
    return found;
  }

 private:
  bool read_some(std::chrono::steady_clock::time_point end) {
    std::array<pollfd, 2> watched{{{streams_[0], POLLIN, 0}, {streams_[1], POLLIN, 0}}};
    if (streams_[0] < 0 && streams_[1] < 0) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0 || ::poll(watched.data(), 2, static_cast<int>(left)) <= 0) return false;
    for (std::size_t i = 0; i < 2; ++i) {
      if (watched[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const auto count = ::read(streams_[i], buffer.data(), buffer.size());
      if (count > 0)
        texts_[i].append(buffer.data(), static_cast<std::size_t>(count));
      else
        close_stream(i);
    }
    return true;
  }

  pid_t pid_ = 0;
  std::array<int, 2> streams_{-1, -1};
  std::array<std::string, 2> texts_;
};

inline result run(std::vector<std::string> arguments, const job::hook& before_exec = {}) {
  return job{std::move(arguments), before_exec}.wait();
}

/// Options, then a script for /bin/sh as the program of every rank.
inline std::vector<std::string> script(std::vector<std::string> options, std::string_view text) {
  options.insert(options.end(), {"--", "/bin/sh", "-c", std::string{text}});
  return options;
}

/// The same, with two words for the script: `ready` says that this rank (or a part of it, by name) has come so far,
/// `await_ready COUNT` waits until so many have said it.
inline std::vector<std::string> script_with_ready(const temporary_directory& folder, std::vector<std::string> options,
                                                  std::string_view text) {
  const std::string words =
      "ready() { : >$DIR/ready.$RANK.$1; }\n"
      "await_ready() { while [ $(ls $DIR | wc -l) -lt $1 ]; do sleep 0.01; done; }\n";
  options.insert(options.end(), {"--env", "DIR=" + folder.path().string()});
  return script(std::move(options), words + std::string{text});
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline std::multiset<std::string> sorted_lines(const std::string& text) {
  const auto lines = lines_of(text);
  return {lines.begin(), lines.end()};
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The numbers that follow a word, for scripts that print "pid 123".
inline std::vector<pid_t> numbers_after(const std::string& text, const std::string& word) {
  std::vector<pid_t> found;
  for (auto at = text.find(word + ' '); at != std::string::npos; at = text.find(word + ' ', at + 1))
    found.push_back(static_cast<pid_t>(std::atoi(text.c_str() + at + word.size() + 1)));
  return found;
}

}  // namespace tutti_test::launcher
