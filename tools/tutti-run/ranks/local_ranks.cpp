#include "tutti-run/ranks/local_ranks.hpp"

#include <sys/signalfd.h>

#include <algorithm>
#include <utility>

#include "tutti-run/output/output.hpp"
#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/rendezvous.hpp"

namespace tutti::launch {
namespace {

unique_fd watch_children() {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  return unique_fd{check(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK), "watch for the end of children")};
}

}  // namespace

local_ranks::local_ranks(const options& given, const signal_state& signals, const rlimit& files, share part,
                         rendezvous_point rendezvous, std::string secret, int lifeline, poller& events)
    : given_(given),
      inherited_{given,
                 part,
                 signals,
                 files,
                 shared_environment(given, part, rendezvous, secret),
                 cpus_of_ranks(given),
                 devices_of_ranks(given),
                 lifeline},
      events_(events),
      children_(watch_children()) {
  events_.add(children_.value(), EPOLLIN, source::children);
  events_.add(ends_.fd(), EPOLLIN, source::ends);
}

void local_ranks::start(job_summary& job, output& shown) {
  prepare(job.ranks, shown);
  job.started = clock::now();
  release();
}

void local_ranks::prepare(std::vector<rank_end>& ends, rank_streams& shown) {
  seen_ = &ends;
  ranks_ = fork_ranks(inherited_, shown);
  for (int index = 0; index < given_.ranks; ++index) {
    const auto& process = ranks_[static_cast<std::size_t>(index)];
    ends[static_cast<std::size_t>(index)].pid = process.pid;
    ends_.add(process, index);
  }
}

void local_ranks::release() { open_gates(inherited_, ranks_); }

void local_ranks::handle(const event& happened) {
  if (happened.from != source::children) return;  // observe() comes first in every round
  for (signalfd_siginfo unread; ::read(children_.value(), &unread, sizeof unread) > 0;) continue;
  reaping_due_ = true;
}

int local_ranks::observe() {
  const int died = ends_.observe(ranks_, *seen_);
  if (died > 0) reaping_due_ = true;
  return died;
}

clock::time_point local_ranks::tick(clock::time_point now) {
  constexpr std::chrono::milliseconds between_looks_at_held{50};
  if (reaping_due_) reap_adopted();
  return ends_.has_held() ? now + between_looks_at_held : clock::time_point::max();
}

void local_ranks::reap_adopted() {
  std::vector<pid_t> ranks;
  for (const auto& rank : *seen_)
    if (!rank.ended) ranks.push_back(rank.pid);
  reap_children(ranks);
  reaping_due_ = false;
}

// Groups first, because a group is signalled as a whole, even while it forks; then whoever has left them.
void local_ranks::signal_everything(std::initializer_list<int> signals) {
  std::vector<pid_t> groups;
  for (const auto& rank : *seen_)
    if (!rank.ended && rank.pid > 0 && ::kill(-rank.pid, 0) == 0) groups.push_back(rank.pid);
  const auto below = descendants();
  for (const int signal : signals) {
    for (const pid_t group : groups) ::kill(-group, signal);
    for (const auto& process : below)
      if (std::ranges::find(groups, process.group) == groups.end()) signal_process(process, signal);
  }
}

void local_ranks::signal_ranks(int signal) {
  for (const auto& rank : ranks_)
    if (rank.handle) pidfd_send_signal(rank.handle.value(), signal);
}

bool local_ranks::gone() { return !has_children(); }

}  // namespace tutti::launch
