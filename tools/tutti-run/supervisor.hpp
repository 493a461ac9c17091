#pragma once

#include <initializer_list>
#include <vector>

#include "tutti-run/options.hpp"
#include "tutti-run/output/output.hpp"
#include "tutti-run/poller.hpp"
#include "tutti-run/ranks/end_watch.hpp"
#include "tutti-run/ranks/spawn.hpp"
#include "tutti-run/report.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {

/// Starts the ranks, shows what they print, and ends the job as a whole.
///
/// It is the parent of all ranks and the subreaper of all that they start. A second process, the guard, stands in front
/// of it with the pid that users see; through the lifeline it passes on signals, and its death closes the lifeline.
class supervisor {
 public:
  supervisor(const options& given, const signal_state& signals, const rlimit& files, std::string secret,
             unique_fd lifeline);

  /// Returns the exit status of the job.
  int run();

 private:
  enum class phase { running, settling, terminating, killing, draining, done };

  void start();
  void handle(const event& happened);
  void obey_lifeline();
  void obey(int signal);
  void observe_ends();
  void reap_adopted();
  void advance();
  void terminate(job_end why);
  void kill(clock::time_point give_up_at);
  void drain();
  void signal_everything(std::initializer_list<int> signals);
  clock::time_point next_deadline() const noexcept;
  void loop();

  const options& given_;
  const signal_state& signals_;
  rlimit files_;
  std::string secret_;
  unique_fd lifeline_;
  poller events_;
  end_watch ends_;
  unique_fd children_;
  output output_;
  std::vector<rank_process> ranks_;
  job_summary job_;
  phase phase_ = phase::running;
  clock::time_point deadline_ = clock::time_point::max();
  clock::time_point next_kill_ = clock::time_point::max();
  int running_;
  bool abandoned_ = false;
  bool reaping_due_ = false;
};

}  // namespace tutti::launch
