#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tutti/bootstrap/spawn/report.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/process_watch.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::detail {

/// Variable by which a process of spawn() knows itself: its parent, rank, the descriptors of order and reports, and
/// its own pid in ten digits. A program that it starts has another pid and is no rank.
inline constexpr std::string_view spawn_variable = "TUTTI_SPAWN";

/// Everything that the processes of one call are started with, prepared before fork(): between fork() and exec() a
/// process that had threads may not allocate.
class spawn_image {
 public:
  /// `arguments` replace those of this process, unless there are none.
  spawn_image(const std::vector<std::string>& arguments, const os::fd& order, const os::fd& reports)
      : program_(own_program()), order_(order.native()), reports_(reports.native()) {
    constexpr std::size_t longest_command_line = std::size_t{1} << 22U;
    const std::string line = os::read_file("/proc/self/cmdline", longest_command_line).value_or("");
    for (std::string_view left = line; !left.empty(); left.remove_prefix((std::min)(left.size(), left.find('\0') + 1)))
      arguments_.emplace_back(left.substr(0, left.find('\0')));
    if (arguments_.empty()) throw usage_error("spawn: cannot read /proc/self/cmdline, by which ranks are started");
    if (!arguments.empty()) {
      arguments_.resize(1);
      arguments_.insert(arguments_.end(), arguments.begin(), arguments.end());
    }
    for (char** v = environ; *v != nullptr; ++v) {
      const std::string_view variable{*v};
      const std::string_view name = variable.substr(0, variable.find('='));
      // A rank's failure is no message for the launcher of this process.
      if (name != spawn_variable && name != "TUTTI_REPORT_FD") environment_.emplace_back(variable);
    }
  }

  /// Starts the process of a rank. Throws error{system} or {out_of_resources}.
  [[nodiscard]] ::pid_t start(int rank) {
    const ::pid_t parent = ::getpid();
    environment_.push_back(std::string{spawn_variable} + "=" + std::to_string(parent) + " " + std::to_string(rank) +
                           " " + std::to_string(order_) + " " + std::to_string(reports_) + " 0000000000");
    const auto variables = pointers(environment_), words = pointers(arguments_);
    ::sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of this program may run in the child
    const ::pid_t pid = ::fork();
    if (pid == 0) become_rank(rank, parent, words.data(), variables.data());
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    environment_.pop_back();
    if (pid < 0)
      os::throw_errno(error, "spawn: cannot start rank " + std::to_string(rank) +
                                 " (raise the limit of processes, ulimit -u or pids.max, or start fewer ranks)");
    return pid;
  }

 private:
  /// Returns the path of this program, so that the ranks have its name in the list of processes; another file may have
  /// taken its place.
  static std::string own_program() {
    const std::string link = "/proc/self/exe";
    std::array<char, PATH_MAX> path{};
    const ::ssize_t n = ::readlink(link.c_str(), path.data(), path.size() - 1);
    struct stat here{}, there{};
    const bool same = n > 0 && ::stat(link.c_str(), &here) == 0 && ::stat(path.data(), &there) == 0 &&
                      here.st_dev == there.st_dev && here.st_ino == there.st_ino;
    return same ? std::string{path.data()} : link;
  }
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> all;
    for (std::string& s : strings) all.push_back(s.data());
    all.push_back(nullptr);
    return all;
  }

  /// Runs in the child: only functions that are safe after the fork() of a process with threads.
  [[noreturn]] void become_rank(int rank, ::pid_t parent, char* const* words, char* const* variables) noexcept {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);     // survives exec(); sent when the thread that forked ends
    if (::getppid() != parent) ::_exit(1);  // the parent had died before
    for (int s = 1; s < NSIG; ++s)
      if (::signal(s, SIG_DFL) == SIG_IGN) ::signal(s, SIG_IGN);
    ::sigset_t none;
    ::sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
    if (const int nothing = rank == 0 ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC); nothing > 0)
      ::dup2(nothing, STDIN_FILENO);
    ::fcntl(order_, F_SETFD, 0);
    ::fcntl(reports_, F_SETFD, 0);
    std::string& identity = environment_.back();
    auto pid = static_cast<unsigned>(::getpid());
    for (std::size_t i = identity.size(); pid > 0; pid /= 10) identity[--i] = static_cast<char>('0' + pid % 10);
    ::execve(program_.c_str(), words, variables);
    spawn_report failed;
    failed.kind = spawn_report::what::no_program;
    failed.rank = rank;
    failed.why = {errc::system, 0, rank, static_cast<std::uint64_t>(errno)};
    std::array<std::byte, 64> bytes;
    const auto message = encode(failed, bytes);
    ::send(reports_, message.data(), message.size(), MSG_NOSIGNAL);
    ::_exit(1);
  }

  std::string program_;
  std::vector<std::string> arguments_;
  std::vector<std::string> environment_;
  int order_;
  int reports_;
};

/// Processes of one call of spawn(), as their parent sees them. The destructor kills those that still run.
class spawned_processes {
 public:
  /// Starts the processes of all ranks. If one cannot be started, those before it are killed.
  spawned_processes(int size, spawn_image& image, os::fd reports) : spawned_processes(std::move(reports)) {
    for (int r = 0; r < size; ++r) {
      const ::pid_t pid = image.start(r);
      all_.push_back({pid, {}});
      all_.back().end = os::process_watch{pid, 0};
    }
  }
  spawned_processes(const spawned_processes&) = delete;
  spawned_processes& operator=(const spawned_processes&) = delete;
  ~spawned_processes() {
    signal(SIGKILL);
    for (process& p : all_) {
      int status = 0;
      while (p.pid > 0 && ::waitpid(p.pid, &status, 0) < 0 && errno == EINTR) {
      }
    }
  }

  [[nodiscard]] int running() const noexcept {
    int n = 0;
    for (const process& p : all_) n += p.pid > 0 ? 1 : 0;
    return n;
  }
  void signal(int number) const noexcept {
    for (const process& p : all_)
      if (p.pid > 0) ::kill(p.pid, number);
  }

  /// Waits until a report comes or a process ends, but not beyond `until`, and returns the news: the reports in the
  /// order in which they were sent, then the ends of processes, as `ended`. Every report of a process comes before its
  /// end.
  [[nodiscard]] std::vector<spawn_report> next(deadline until) {
    std::vector<pollfd> watched{{reports_.native(), POLLIN, 0}};
    bool by_asking = false;
    for (const process& p : all_) {
      if (p.pid <= 0) continue;
      by_asking = by_asking || p.held || p.end.native() < 0;
      if (!p.held) watched.push_back({p.end.native(), POLLIN, 0});
    }
    auto patience = std::chrono::ceil<std::chrono::milliseconds>(remaining(until)).count();
    patience = (std::min)(patience, std::int64_t{by_asking ? 20 : 60'000});
    ::poll(watched.data(), watched.size(), static_cast<int>(patience));
    std::vector<spawn_report> ends;
    for (std::size_t r = 0; r < all_.size(); ++r)
      if (const auto status = reap(all_[r]))
        ends.push_back({spawn_report::what::ended,
                        static_cast<int>(r),
                        {errc::peer_lost, 0, static_cast<int>(r), *status},
                        0,
                        {}});
    std::vector<spawn_report> news = received();
    news.insert(news.end(), ends.begin(), ends.end());
    return news;
  }

 private:
  struct process {
    ::pid_t pid = 0;  ///< 0 once it has ended
    os::process_watch end;
    bool held = false;  ///< dead, but a debugger that traces it has not let go of it
  };

  /// The other constructor calls this one, so that the destructor runs for what throws after it.
  explicit spawned_processes(os::fd reports) : reports_(std::move(reports)) {}

  static std::optional<std::uint64_t> reap(process& p) noexcept {
    if (p.pid <= 0 || !p.end.exited()) return std::nullopt;
    int status = 0;
    ::pid_t who = 0;
    while ((who = ::waitpid(p.pid, &status, WNOHANG)) < 0 && errno == EINTR) {
    }
    p.held = who == 0;
    if (p.held) return std::nullopt;
    p.pid = 0;
    return who < 0 ? unknown_status : static_cast<std::uint64_t>(status);
  }
  std::vector<spawn_report> received() const {
    std::vector<spawn_report> all;
    std::vector<std::byte> bytes(spawn_report::longest);
    for (;;) {
      const ::ssize_t n = ::recv(reports_.native(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return all;
      wire::byte_reader in{std::span{bytes}.first(static_cast<std::size_t>(n))};
      if (auto r = decode_report(in); r && r->rank >= 0 && static_cast<std::size_t>(r->rank) < all_.size())
        all.push_back(*std::move(r));
    }
  }

 public:
  /// Status of a process for which this program has waited elsewhere, or that ended while SIGCHLD was ignored.
  static constexpr std::uint64_t unknown_status = ~std::uint64_t{0};

 private:
  os::fd reports_;
  std::vector<process> all_;
};

/// This process as one that spawn() has started.
class spawned_process {
 public:
  /// Returns the place of this process; nullopt if spawn() has not started it. Throws usage_error in other descendants
  /// of a rank: ranks that a copy of main() starts could start ranks in turn, without end.
  [[nodiscard]] static std::optional<spawned_process> here() {
    const char* text = std::getenv(spawn_variable.data());
    if (text == nullptr) return std::nullopt;
    std::array<int, 5> numbers{};
    const std::string_view whole{text};
    const char* at = whole.data();
    const char* const end = at + whole.size();
    for (int& n : numbers) {
      const auto parsed = std::from_chars(at, end, n);
      if (parsed.ec != std::errc{}) throw usage_error("spawn: environment: TUTTI_SPAWN is spawn()'s own; unset it");
      at = parsed.ptr == end ? end : parsed.ptr + 1;
    }
    spawned_process me;
    me.parent_ = numbers[0];
    me.rank_ = numbers[1];
    me.order_ = numbers[2];
    me.reports_ = numbers[3];
    if (numbers[4] != ::getpid())
      throw usage_error(
          "spawn: this process descends from rank " + std::to_string(me.rank_) +
          ", which spawn() has started; start another program without the variable TUTTI_SPAWN if it is to spawn ranks "
          "of its own; a main() that forks before spawn() (a daemon) cannot be run again");
    return me;
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int order() const noexcept { return order_; }
  /// Ends this process if its parent has died: then nobody waits for it.
  void expect_parent() const noexcept {
    if (::getppid() != parent_) ::_exit(1);
  }
  /// Keeps the descriptors from programs that the rank starts.
  void close_on_exec() const noexcept {
    ::fcntl(order_, F_SETFD, FD_CLOEXEC);
    ::fcntl(reports_, F_SETFD, FD_CLOEXEC);
  }
  void send(const spawn_report& r) const {
    std::vector<std::byte> bytes(spawn_report::longest);
    const auto message = encode(r, bytes);
    while (::send(reports_, message.data(), message.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

 private:
  int parent_ = 0;
  int rank_ = 0;
  int order_ = -1;
  int reports_ = -1;
};

}  // namespace tutti::detail
