#include "tutti-run/machines/remote_shell.hpp"

#include <fcntl.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <csignal>

namespace tutti::launch {
namespace {

std::array<unique_fd, 2> make_pipe() {
  int both[2];
  check(::pipe2(both, O_CLOEXEC), "make a pipe");
  return {unique_fd{both[0]}, unique_fd{both[1]}};
}

// As every shell that people log in with understands it; "~/bin/tutti-run" is in the home folder there.
std::string quoted_for_shell(const std::string& path) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view{"/._-+@:,~"}.find(c) != std::string_view::npos;
  };
  if (std::ranges::all_of(path, plain)) return path;
  if (path.find('\'') != std::string::npos) throw failure(2, text("the path of tutti-run has a quote in it: ", path));
  return '\'' + path + '\'';
}

}  // namespace

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in{text};
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const auto length = check(::readlink("/proc/self/exe", path.data(), path.size() - 1), "find tutti-run's own path");
  return {path.data(), static_cast<std::size_t>(length)};
}

std::vector<std::string> agent_command(const remote_shell& shell, const std::string& host, bool here) {
  if (here) return {own_path(), "--agent"};
  auto command = shell.ssh;
  // Nobody is there to be asked for a password. A connection that others share would outlive the job.
  for (const char* word : {"-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "--"}) command.emplace_back(word);
  command.push_back(host);
  command.push_back("exec " + quoted_for_shell(shell.launcher) + " --agent");
  return command;
}

piped_process start_piped(const std::vector<std::string>& command, const signal_state& signals) {
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  piped_process started;
  const pid_t parent = ::getpid();
  started.pid = check(::fork(), "start ssh");
  if (started.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    // All of these numbers are above those of the standard streams, which guard.cpp keeps open.
    ::dup2(in[0].value(), STDIN_FILENO);
    ::dup2(out[1].value(), STDOUT_FILENO);
    ::dup2(err[1].value(), STDERR_FILENO);
    restore_signals(signals);
    ::execvp(arguments.front(), arguments.data());
    const std::string said = text("cannot run ", command.front(), ": ", std::strerror(errno), '\n');
    static_cast<void>(!::write(STDERR_FILENO, said.data(), said.size()));
    ::_exit(errno == ENOENT ? 255 : 254);
  }
  started.handle.reset(check(pidfd_open(started.pid), "open a pidfd (Linux 5.4 or newer is needed)"));
  started.in = std::move(in[1]);
  started.out = std::move(out[0]);
  started.err = std::move(err[0]);
  return started;
}

}  // namespace tutti::launch
