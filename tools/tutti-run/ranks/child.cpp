#include "tutti-run/ranks/child.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "tutti-run/options.hpp"
#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/ranks/spawn.hpp"
#include "tutti-run/rendezvous.hpp"

namespace tutti::launch {
namespace {

constexpr int gave_up = 126;

// Whatever is open from here on closes at exec.
constexpr int first_free_number = STDERR_FILENO + 1;

// A dying process closes its files before the kernel reports its death, last number first. A peer that sees its
// connection close may die of that and be reported earlier. The highest number closes before any connection.
int breath_number(const rlimit& files) noexcept {
  constexpr rlim_t highest = 1023;  // far enough up, without a large table of descriptors
  return static_cast<int>(std::clamp<rlim_t>(files.rlim_cur, first_free_number + 1, highest + 1)) - 1;
}

// Out of the way of the numbers that are to be given out.
int lift(int fd, int avoided = -1) noexcept {
  const int lifted = ::fcntl(fd, F_DUPFD_CLOEXEC, first_free_number);
  return lifted >= 0 && lifted == avoided ? ::fcntl(fd, F_DUPFD_CLOEXEC, first_free_number) : lifted;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

bool redirect(int from, int to) noexcept { return from < 0 || ::dup2(from, to) == to; }

bool bind_to(const std::vector<int>& cpus) noexcept {
  const auto count = static_cast<std::size_t>(std::ranges::max(cpus)) + 1;
  const auto free = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free)> set{CPU_ALLOC(count), free};
  if (!set) return false;
  CPU_ZERO_S(CPU_ALLOC_SIZE(count), set.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), CPU_ALLOC_SIZE(count), set.get());
  return ::sched_setaffinity(0, CPU_ALLOC_SIZE(count), set.get()) == 0;
}

bool redirect_input(int rank, const unique_fd& given) noexcept {
  if (given) return redirect(given.value(), STDIN_FILENO);
  if (rank == 0) return true;
  const unique_fd nothing{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  return nothing && redirect(nothing.value(), STDIN_FILENO);
}

class steps {
 public:
  explicit steps(int gate) noexcept : gate_(gate) {}
  void operator()(child_stage stage, bool succeeded) const noexcept {
    if (succeeded) return;
    const child_error met{stage, errno};
    ::send(gate_, &met, sizeof met, MSG_NOSIGNAL);
    ::_exit(gave_up);
  }

 private:
  int gate_;
};

}  // namespace

std::string_view name_of(child_stage stage) noexcept {
  switch (stage) {
    case child_stage::parent:
      return "tie to the launcher";
    case child_stage::streams:
      return "redirect stdin, stdout, stderr";
    case child_stage::cpu:
      return "bind to CPUs";
    case child_stage::breath:
      return "keep the socket that tells of its death";
    case child_stage::files:
      return "restore the limit of open files";
    case child_stage::program:
      return "run the program";
  }
  return "?";
}

void become_rank(const inheritance& inherited, int index, pid_t launcher, const child_ends& ends) noexcept {
  const int breath = breath_number(inherited.files);
  const int gate = lift(ends.gate.value(), breath);
  if (gate < 0) ::_exit(gave_up);
  const steps require{gate};
  require(child_stage::parent, ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  // If the launcher died before the call above, no signal will ever come.
  if (::getppid() != launcher) ::_exit(gave_up);
  char go = 0;
  if (::recv(gate, &go, 1, 0) != 1) ::_exit(gave_up);

  require(child_stage::streams, redirect_input(inherited.part.first + index, ends.shown.in) &&
                                    redirect(ends.shown.out.value(), STDOUT_FILENO) &&
                                    redirect(ends.shown.err.value(), STDERR_FILENO));
  const int breath_end = lift(ends.breath.value(), breath);
  if (const auto& cpus = inherited.cpus; !cpus.empty())
    require(child_stage::cpu, bind_to(cpus[static_cast<std::size_t>(index) % cpus.size()]));
  require(child_stage::breath, ::dup2(breath_end, breath) == breath);
  require(child_stage::files, ::setrlimit(RLIMIT_NOFILE, &inherited.files) == 0);

  auto variables = rank_environment(inherited.environment, inherited.part, index, breath, inherited.devices);
  auto arguments = inherited.given.command;
  const auto variable_pointers = pointers_to(variables);
  const auto argument_pointers = pointers_to(arguments);
  environ = const_cast<char**>(variable_pointers.data());  // execvp searches the PATH that the rank is to have
  restore_signals(inherited.signals);
  ::execvp(argument_pointers.front(), const_cast<char**>(argument_pointers.data()));
  require(child_stage::program, false);
  ::_exit(gave_up);
}

}  // namespace tutti::launch
