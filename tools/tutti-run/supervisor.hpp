#pragma once

#include "tutti-run/guard.hpp"
#include "tutti-run/options.hpp"
#include "tutti-run/output/output.hpp"
#include "tutti-run/poller.hpp"
#include "tutti-run/ranks/job_ranks.hpp"
#include "tutti-run/ranks/rank_names.hpp"
#include "tutti-run/report.hpp"
#include "tutti-run/status/child.hpp"

namespace tutti::launch {

/// Starts the ranks, shows what they print, and ends the job as a whole.
///
/// It is the subreaper of all that is started on this machine. A second process, the guard, stands in front of it with
/// the pid that users see; through the lifeline it passes on signals, and its death closes the lifeline.
class supervisor {
 public:
  /// `world` is the number of ranks of the job, of which `names` are this launcher's.
  supervisor(const options& given, const rank_names& names, int world, poller& events, job_ranks& ranks,
             const supervision_place& here);

  /// Returns the exit status of the job.
  int run();

 private:
  enum class phase { running, settling, terminating, killing, draining, done };

  void start();
  void handle(const event& happened);
  void obey_lifeline();
  void obey(int signal);
  void observe_ends();
  void advance();
  void terminate(job_end why);
  void kill(clock::time_point give_up_at);
  void drain();
  clock::time_point next_deadline() const noexcept;
  void loop();

  const options& given_;
  poller& events_;
  job_ranks& ranks_;
  const unique_fd& lifeline_;
  status_child status_;
  output output_;
  job_summary job_;
  phase phase_ = phase::running;
  clock::time_point deadline_ = clock::time_point::max();
  clock::time_point next_kill_ = clock::time_point::max();
  clock::time_point next_tick_ = clock::time_point::max();
  int running_;
  bool abandoned_ = false;
};

}  // namespace tutti::launch
