#include "tutti-run/ranks/spawn.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>

#include "tutti-run/options.hpp"
#include "tutti-run/ranks/child.hpp"
#include "tutti-run/ranks/numa.hpp"

namespace tutti::launch {
namespace {

// Room for more CPUs than the 1024 of cpu_set_t.
constexpr std::size_t cpus_known = 1U << 14U;

rank_process fork_rank(const inheritance& inherited, rank_streams& shown, int index) {
  int gate[2];
  check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, gate), "make a socket pair");
  rank_process started;
  started.gate.reset(gate[0]);
  child_ends ends{unique_fd{gate[1]}, {}, {}};
  int breath[2];
  check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, breath), "make a socket pair");
  started.breath.reset(breath[0]);
  ends.breath.reset(breath[1]);
  ends.shown = shown.connect(index);
  const pid_t launcher = ::getpid();
  started.pid = ::fork();
  if (started.pid == 0) become_rank(inherited, index, launcher, ends);
  if (started.pid < 0)
    throw failure(2, text("cannot start rank ", inherited.part.first + index, " of ", inherited.part.world, ": ",
                          std::strerror(errno),
                          ": raise the limit of processes (ulimit -u, or pids.max of this container) or start fewer"));
  started.handle.reset(check(pidfd_open(started.pid), "open a pidfd (Linux 5.4 or newer is needed)"));
  check(::setpgid(started.pid, started.pid), "make a process group");
  return started;
}

// execvp reports a closed folder in PATH rather than that the program is in none of the others.
bool is_in_path(const std::vector<std::string>& environment, const std::string& program) {
  constexpr std::string_view name = "PATH=";
  const auto path = std::ranges::find_if(environment, [&](const std::string& one) { return one.starts_with(name); });
  std::istringstream folders{path == environment.end() ? std::string{} : path->substr(name.size())};
  for (std::string folder; std::getline(folders, folder, ':');)
    if (struct stat found{}; ::stat((folder + '/' + program).c_str(), &found) == 0) return true;
  return false;
}

failure cannot_run(const inheritance& inherited, int error) {
  const auto& program = inherited.given.command.front();
  const bool searched = program.find('/') == std::string::npos;
  struct stat found{};
  const bool exists = searched ? is_in_path(inherited.environment, program) : ::stat(program.c_str(), &found) == 0;
  std::string why = std::strerror(error);
  if (error == EACCES) why = "it is not an executable file, or a folder on its path is closed to this user";
  if (error == ENOENT) why = "there is no such file";
  if (error == ENOENT && exists) why = "the interpreter it names (first line, or dynamic loader) does not exist";
  const bool absent = searched && !exists && (error == ENOENT || error == EACCES);
  if (absent) why = "there is no such program in PATH";
  return failure{absent || error == ENOENT ? 127 : 126, text("cannot run '", program, "': ", why)};
}

void release(const rank_process& rank) noexcept { ::send(rank.gate.value(), "", 1, MSG_NOSIGNAL); }

// The gate of a rank closes when its program runs; before that, it may bring the reason why it cannot.
void await_program(const inheritance& inherited, rank_process& process, int rank) {
  std::array<pollfd, 2> watched{{{process.gate.value(), POLLIN, 0}, {inherited.lifeline, POLLIN, 0}}};
  while (watched[0].revents == 0) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) check(-1, "wait for a rank to start");
    if (watched[1].revents != 0) obey_while_starting(inherited.lifeline);
  }
  child_error met{};
  const auto length = ::recv(process.gate.value(), &met, sizeof met, 0);
  process.gate.reset();
  if (length <= 0) return;
  if (met.at == child_stage::program) throw cannot_run(inherited, met.error);
  throw failure(126, text("cannot set up rank ", rank, " (", name_of(met.at), "): ", std::strerror(met.error)));
}

// In ascending order.
std::vector<int> allowed_cpus() {
  const auto free = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free)> set{CPU_ALLOC(cpus_known), free};
  const std::size_t size = CPU_ALLOC_SIZE(cpus_known);
  check(::sched_getaffinity(0, size, set.get()), "read the CPUs allowed here");
  std::vector<int> found;
  for (std::size_t cpu = 0; cpu < cpus_known; ++cpu)
    if (CPU_ISSET_S(cpu, size, set.get())) found.push_back(static_cast<int>(cpu));
  return found;
}

}  // namespace

// Signals that do not end a job have nothing to act on yet.
void obey_while_starting(int lifeline) {
  int signal = SIGKILL;
  const auto length = ::recv(lifeline, &signal, sizeof signal, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const bool ends = signal != SIGTSTP && signal != SIGCONT && signal != SIGUSR1 && signal != SIGUSR2;
  if (length > 0 && (!ends || signal == status_key)) return;
  throw failure(128 + signal, text("ended by ", signal_name(signal), " while the ranks were starting"));
}

std::vector<rank_process> fork_ranks(const inheritance& inherited, rank_streams& shown) {
  std::vector<rank_process> ranks;
  for (int index = 0; index < inherited.given.ranks; ++index) ranks.push_back(fork_rank(inherited, shown, index));
  return ranks;
}

void open_gates(const inheritance& inherited, std::vector<rank_process>& ranks) {
  release(ranks.front());
  await_program(inherited, ranks.front(), inherited.part.first);
  for (std::size_t index = 1; index < ranks.size(); ++index) release(ranks[index]);
  for (std::size_t index = 1; index < ranks.size(); ++index)
    await_program(inherited, ranks[index], inherited.part.first + static_cast<int>(index));
}

std::vector<std::vector<int>> cpus_of_ranks(const options& given) {
  if (given.bind == binding::none) return {};
  const auto allowed = allowed_cpus();
  if (given.bind == binding::numa) return spread_over(numa_nodes("/sys/devices/system/node", allowed), given.ranks);
  std::vector<std::vector<int>> each;
  for (const int cpu : allowed) each.push_back({cpu});
  return each;
}

}  // namespace tutti::launch
