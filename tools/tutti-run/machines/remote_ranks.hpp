#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-run/machines/channel.hpp"
#include "tutti-run/machines/machine_list.hpp"
#include "tutti-run/machines/order.hpp"
#include "tutti-run/machines/remote_shell.hpp"
#include "tutti-run/output/line_splitter.hpp"
#include "tutti-run/ranks/job_ranks.hpp"
#include "tutti-run/ranks/rank_names.hpp"
#include "tutti-run/report.hpp"
#include "tutti-run/signals.hpp"
#include "tutti-run/status/server.hpp"

namespace tutti::launch {

/// Ranks on several machines. On each of them an agent, a tutti-run started by ssh, is the parent of its ranks; on this
/// machine without ssh.
class remote_ranks : public job_ranks {
 public:
  /// The arguments refer to objects that must outlive this one. `lifeline` is readable once the start is to be given
  /// up.
  remote_ranks(const options& given, const std::vector<machine_slots>& machines, const signal_state& signals,
               int lifeline, poller& events);

  /// The machine of each rank.
  static rank_names names(const std::vector<machine_slots>& machines);

  void start(job_summary& job, output& shown) override;
  void handle(const event& happened) override;
  int observe() override;
  clock::time_point tick(clock::time_point now) override;
  void begin_ending() override;
  void signal_everything(std::initializer_list<int> signals) override;
  void signal_ranks(int signal) override;
  bool gone() override;

 private:
  enum class state { starting, met, prepared, running, finished, lost };

  struct machine {
    std::string name;
    std::string target;  ///< as ssh takes it
    bool here = false;
    int first = 0;
    int ranks = 0;
    piped_process process;
    channel messages;
    line_splitter words;
    std::deque<std::string> said;  ///< the last lines of ssh and of the agent, until the ranks run
    greeting hello;
    state at = state::starting;
    bool broken = false;    ///< nothing more can come from it
    std::int64_t owed = 0;  ///< bytes of its output that have been passed on and not been told of
  };

  void connect(const machine_slots& where, int index, int first);
  void give_orders();
  void serve_status();
  void await(state wanted, std::size_t from, std::size_t to, const char* what);
  void check_start(const machine& one) const;
  std::string ssh_to_try(const machine& one) const;
  void obey(machine& from, message kind, std::string_view content);
  void record_end(machine& of, std::string_view content);
  void read_words(machine& of);
  void pass_input();
  void lose(machine& which, const std::string& why);
  void lose_silent(clock::time_point now, clock::duration longest);
  template <class Send>
  void tell(const Send& send);

  const options& given_;
  const signal_state& signals_;
  int lifeline_;
  poller& events_;
  std::vector<machine> machines_;
  std::optional<status_server> status_;
  job_summary* job_ = nullptr;
  output* shown_ = nullptr;
  std::uint64_t seen_ = 0;
  bool ending_ = false;
  int newly_ended_ = 0;
  clock::time_point next_word_{};
  std::int64_t input_credit_ = input_window;
  enum class input { none, watched, unwatched } input_ = input::none;
  bool dropped_[2] = {false, false};
};

}  // namespace tutti::launch
