#include "tutti-run/supervisor.hpp"

#include <sys/socket.h>

#include <algorithm>

#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto patience_with_kill = 10s;  // only a process stuck inside the kernel outlives SIGKILL for long
constexpr auto kill_again_after = 50ms;
constexpr int status_of_lost_output = 1;

}  // namespace

supervisor::supervisor(const options& given, const rank_names& names, int world, poller& events, job_ranks& ranks,
                       const supervision_place& here)
    : given_(given),
      events_(events),
      ranks_(ranks),
      lifeline_(here.lifeline),
      status_(here.signals, events),
      output_(given.output, given.ranks, names, events),
      running_(given.ranks) {
  job_.names = names;
  job_.world = world;
  job_.ranks.resize(static_cast<std::size_t>(given.ranks));
  events_.add(lifeline_.value(), EPOLLIN, source::lifeline);
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
  ranks_.start(job_, output_);
  if (given_.timeout) deadline_ = job_.started + *given_.timeout;
}

void supervisor::loop() {
  while (phase_ != phase::done) {
    const auto happened = events_.wait(next_deadline());
    observe_ends();
    for (const auto& one : happened) handle(one);
    next_tick_ = ranks_.tick(clock::now());
    advance();
    output_.flush();
    if (phase_ == phase::draining && output_.is_idle()) phase_ = phase::done;
  }
}

clock::time_point supervisor::next_deadline() const noexcept {
  const auto next = std::min({deadline_, output_.due(), next_tick_});
  return phase_ == phase::killing ? std::min(next, next_kill_) : next;
}

void supervisor::handle(const event& happened) {
  switch (happened.from) {
    case source::lifeline:
      return obey_lifeline();
    case source::children:
    case source::ends:
    case source::death:
    case source::last_breath:
    case source::machine:
    case source::words:
    case source::input:
    case source::status_server:
      return ranks_.handle(happened);
    case source::status:
      if (const auto said = status_.read()) output_.say(said->out + said->err);
      return;
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
  if (phase_ < phase::terminating)
    terminate(job_end::interrupted);
  else if (phase_ == phase::draining)
    phase_ = phase::done;
  else
    kill(clock::now() + patience_with_kill);
}

void supervisor::obey(int signal) {
  switch (signal) {
    case SIGTSTP:
    case SIGCONT:
      return ranks_.signal_everything({signal});
    case SIGUSR1:
    case SIGUSR2:
      return ranks_.signal_ranks(signal);
    case status_key:
      if (phase_ != phase::running) return;
      if (const auto why = status_.start({"--status", std::to_string(::getpid())}); !why.empty())
        output_.say(text("tutti-run: cannot show the status: ", why, '\n'));
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
  const int died = ranks_.observe();
  if (died == 0) return;
  running_ -= died;
  if (phase_ == phase::running && std::ranges::any_of(job_.ranks, &rank_end::failed)) {
    phase_ = phase::settling;
    deadline_ = std::min(deadline_, clock::now() + given_.settle);
  }
}

void supervisor::advance() {
  const auto now = clock::now();
  switch (phase_) {
    case phase::running:
    case phase::settling:
      if (running_ == 0) return ranks_.gone() ? drain() : terminate(job_end::by_itself);
      if (now >= deadline_) terminate(phase_ == phase::settling ? job_end::by_itself : job_end::timed_out);
      return;
    case phase::terminating:
      if (ranks_.gone()) return drain();
      if (now >= deadline_) kill(now + patience_with_kill);
      return;
    case phase::killing:
      if (ranks_.gone()) return drain();
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
  ranks_.begin_ending();
  phase_ = phase::terminating;
  deadline_ = job_.ending + given_.grace;
  ranks_.signal_everything({SIGTERM, SIGCONT});  // a stopped process would not see the first without the second
}

void supervisor::kill(clock::time_point give_up_at) {
  const auto now = clock::now();
  if (phase_ != phase::killing) job_.killing = now;
  phase_ = phase::killing;
  deadline_ = give_up_at;
  next_kill_ = now + kill_again_after;
  ranks_.signal_everything({SIGKILL});
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

}  // namespace tutti::launch
