#include "tutti-run/supervisor.hpp"

#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>

#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/rendezvous.hpp"

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto patience_with_kill = 10s;  // only a process stuck inside the kernel outlives SIGKILL for long
constexpr auto kill_again_after = 50ms;
constexpr int status_of_lost_output = 1;

unique_fd watch_children() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  return unique_fd{check(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK), "watch for the end of children")};
}

}  // namespace

supervisor::supervisor(const options& given, const signal_state& signals, const rlimit& files, std::string secret,
                       unique_fd lifeline)
    : given_(given),
      signals_(signals),
      files_(files),
      secret_(std::move(secret)),
      lifeline_(std::move(lifeline)),
      children_(watch_children()),
      output_(given.output, given.ranks, events_),
      running_(given.ranks) {
  job_.ranks.resize(static_cast<std::size_t>(given.ranks));
  events_.add(lifeline_.value(), EPOLLIN, source::lifeline);
  events_.add(children_.value(), EPOLLIN, source::children);
  events_.add(ends_.fd(), EPOLLIN, source::ends);
}

int supervisor::run() {
  try {
    start();
    loop();
  } catch (...) {
    kill_descendants(clock::now() + patience_with_kill);
    throw;
  }
  const int status = exit_status(job_);
  return status == 0 && output_.lost() ? status_of_lost_output : status;
}

void supervisor::start() {
  const auto meeting = make_rendezvous();
  const inheritance inherited{given_,
                              signals_,
                              files_,
                              shared_environment(given_, meeting, secret_),
                              cpus_of_ranks(given_),
                              devices_of_ranks(given_),
                              lifeline_.value()};
  ranks_ = fork_ranks(inherited, output_);
  for (int rank = 0; rank < given_.ranks; ++rank) {
    const auto& process = ranks_[static_cast<std::size_t>(rank)];
    job_.ranks[static_cast<std::size_t>(rank)].pid = process.pid;
    ends_.add(process, rank);
  }
  job_.started = clock::now();
  if (given_.timeout) deadline_ = job_.started + *given_.timeout;
  open_gates(inherited, ranks_);
}

void supervisor::loop() {
  while (phase_ != phase::done) {
    const auto happened = events_.wait(next_deadline());
    observe_ends();
    for (const auto& one : happened) handle(one);
    if (reaping_due_) reap_adopted();
    advance();
    output_.flush();
    if (phase_ == phase::draining && output_.is_idle()) phase_ = phase::done;
  }
}

clock::time_point supervisor::next_deadline() const noexcept {
  const auto next = std::min(deadline_, output_.due());
  return phase_ == phase::killing ? std::min(next, next_kill_) : next;
}

void supervisor::handle(const event& happened) {
  switch (happened.from) {
    case source::lifeline:
      return obey_lifeline();
    case source::children: {
      for (signalfd_siginfo unread; ::read(children_.value(), &unread, sizeof unread) > 0;) continue;
      reaping_due_ = true;
      return;
    }
    case source::ends:
    case source::death:
    case source::last_breath:
      return;  // observe_ends() comes first in every round
    case source::out:
    case source::err:
    case source::sink:
      return output_.handle(happened);
  }
}

void supervisor::obey_lifeline() {
  int signal = 0;
  const auto length = ::recv(lifeline_.value(), &signal, sizeof signal, MSG_DONTWAIT);
  if (length > 0) return obey(signal);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // The guard is dead, so nobody waits for the job any more, and nobody could end it later.
  events_.remove(lifeline_.value());
  abandoned_ = true;
  kill(clock::now() + patience_with_kill);
}

void supervisor::obey(int signal) {
  switch (signal) {
    case SIGTSTP:
    case SIGCONT:
      return signal_everything({signal});
    case SIGUSR1:
    case SIGUSR2:
      for (const auto& rank : ranks_)
        if (rank.handle) pidfd_send_signal(rank.handle.value(), signal);
      return;
    default:
      break;
  }
  if (phase_ < phase::terminating) {
    job_.interrupt = signal;
    output_.say(text("tutti-run: ", signal_name(signal), ": ending the ranks; once more kills them at once\n"));
    terminate(job_end::interrupted);
  } else if (phase_ == phase::terminating) {
    kill(clock::now() + patience_with_kill);
  } else if (phase_ == phase::draining) {
    phase_ = phase::done;
  }
}

void supervisor::observe_ends() {
  const int died = ends_.observe(ranks_, job_.ranks);
  if (died == 0) return;
  running_ -= died;
  reaping_due_ = true;
  if (phase_ == phase::running && std::ranges::any_of(job_.ranks, &rank_end::failed)) {
    phase_ = phase::settling;
    deadline_ = std::min(deadline_, clock::now() + given_.settle);
  }
}

void supervisor::reap_adopted() {
  std::vector<pid_t> ranks;
  for (const auto& rank : job_.ranks)
    if (!rank.ended) ranks.push_back(rank.pid);
  reap_children(ranks);
  reaping_due_ = false;
}

void supervisor::advance() {
  const auto now = clock::now();
  switch (phase_) {
    case phase::running:
    case phase::settling:
      if (running_ == 0) return has_children() ? terminate(job_end::by_itself) : drain();
      if (now >= deadline_) terminate(phase_ == phase::settling ? job_end::by_itself : job_end::timed_out);
      return;
    case phase::terminating:
      if (!has_children()) return drain();
      if (now >= deadline_) kill(now + patience_with_kill);
      return;
    case phase::killing:
      if (!has_children()) return drain();
      job_.gave_up = now >= deadline_;
      if (job_.gave_up) return drain();
      if (now >= next_kill_) kill(deadline_);
      return;
    case phase::draining:
      if (now >= deadline_) phase_ = phase::done;
      return;
    case phase::done:
      return;
  }
}

void supervisor::terminate(job_end why) {
  job_.end = why;
  job_.ending = clock::now();
  ends_.begin_ending();
  phase_ = phase::terminating;
  deadline_ = job_.ending + given_.grace;
  signal_everything({SIGTERM, SIGCONT});  // a stopped process would not see the first without the second
}

void supervisor::kill(clock::time_point give_up_at) {
  const auto now = clock::now();
  if (phase_ != phase::killing) job_.killing = now;
  phase_ = phase::killing;
  deadline_ = give_up_at;
  next_kill_ = now + kill_again_after;
  signal_everything({SIGKILL});
}

void supervisor::drain() {
  if (abandoned_) {
    phase_ = phase::done;
    return;
  }
  output_.finish();
  output_.say(describe(job_, output_));
  phase_ = phase::draining;
  // Whoever pages through the output may take all the time in the world, unless the job has a time limit.
  deadline_ =
      given_.timeout ? std::max(job_.started + *given_.timeout, clock::now() + given_.grace) : clock::time_point::max();
}

// Groups first, because a group is signalled as a whole, even while it forks; then whoever has left them.
void supervisor::signal_everything(std::initializer_list<int> signals) {
  std::vector<pid_t> groups;
  for (const auto& rank : job_.ranks)
    if (!rank.ended && rank.pid > 0 && ::kill(-rank.pid, 0) == 0) groups.push_back(rank.pid);
  const auto below = descendants();
  for (const int signal : signals) {
    for (const pid_t group : groups) ::kill(-group, signal);
    for (const auto& process : below)
      if (std::ranges::find(groups, process.group) == groups.end()) signal_process(process, signal);
  }
}

}  // namespace tutti::launch
