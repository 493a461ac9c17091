#include "tutti-run/ranks/end_watch.hpp"

#include <sys/socket.h>
#include <sys/wait.h>

#include "tutti-run/ranks/process_tree.hpp"

namespace tutti::launch {

void end_watch::add(const rank_process& process, int rank) {
  events_.add(process.handle.value(), EPOLLIN, source::death, rank);
  events_.add(process.breath.value(), 0, source::last_breath, rank);  // epoll reports hang-ups without being asked
}

int end_watch::observe(std::vector<rank_process>& processes, std::vector<rank_end>& ends) {
  int died = 0;
  for (auto happened = events_.wait({}); !happened.empty(); happened = events_.wait({})) {
    const auto now = clock::now();
    for (const auto& one : happened) {
      const rank_end::mark mark{++seen_, now};
      auto& process = processes[static_cast<std::size_t>(one.index)];
      auto& end = ends[static_cast<std::size_t>(one.index)];
      hear(process, end);
      if (one.from == source::last_breath) {
        process.breath.reset();
        // A program that closes what it does not know is not dying.
        if (!end.ended && is_exiting(end.pid)) end.died = mark;
      } else if (record_death(end, mark)) {
        process.handle.reset();
        ++died;
      }
    }
  }
  return died;
}

// A program may have had more than one world; the last one that failed may be why it ends.
void end_watch::hear(const rank_process& process, rank_end& end) noexcept {
  for (std::int32_t rank; process.breath && ::recv(process.breath.value(), &rank, sizeof rank, MSG_DONTWAIT) ==
                                                static_cast<ssize_t>(sizeof rank);)
    end.blames = rank;
}

bool end_watch::record_death(rank_end& end, rank_end::mark when) const noexcept {
  siginfo_t how{};
  if (::waitid(P_PID, static_cast<id_t>(end.pid), &how, WEXITED | WNOHANG) != 0 || how.si_pid == 0) return false;
  end.ended = true;
  if (when.order < end.died.order) end.died = when;
  end.by_launcher = end.died.order > ending_from_;
  end.code = how.si_code;
  end.status = how.si_status;
  return true;
}

}  // namespace tutti::launch
