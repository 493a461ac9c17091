#pragma once

#include <vector>

#include "tutti-run/options.hpp"
#include "tutti-run/ranks/end_watch.hpp"
#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/ranks/job_ranks.hpp"
#include "tutti-run/ranks/rank_streams.hpp"
#include "tutti-run/ranks/spawn.hpp"
#include "tutti-run/signals.hpp"

namespace tutti::launch {

/// Ranks that are processes of this machine. This process is their parent, and the subreaper of all that they start.
class local_ranks : public job_ranks {
 public:
  /// `lifeline` is readable as soon as the start is to be given up; what the arguments refer to must outlive this.
  local_ranks(const options& given, const signal_state& signals, const rlimit& files, share part,
              rendezvous_point rendezvous, std::string secret, int lifeline, poller& events);

  void start(job_summary& job, output& shown) override;
  void handle(const event& happened) override;
  int observe() override;
  clock::time_point tick(clock::time_point now) override;
  void begin_ending() override { ends_.begin_ending(); }
  void signal_everything(std::initializer_list<int> signals) override;
  void signal_ranks(int signal) override;
  bool gone() override;

  /// The two halves of start(): makes the processes, and lets them run their program.
  void prepare(std::vector<rank_end>& ends, rank_streams& shown);
  void release();

 private:
  void reap_adopted();

  const options& given_;
  inheritance inherited_;
  poller& events_;
  end_watch ends_;
  unique_fd children_;
  std::vector<rank_process> ranks_;
  std::vector<rank_end>* seen_ = nullptr;
  bool reaping_due_ = false;
};

}  // namespace tutti::launch
