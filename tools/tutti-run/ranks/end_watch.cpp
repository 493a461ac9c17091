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
  int died = take_held(ends);
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
        if (!end.ended && mark.order < end.died.order && is_exiting(end.pid)) end.died = mark;
      } else {
        if (mark.order < end.died.order) end.died = mark;
        // A tracer, such as a debugger, takes note of the death before the parent can.
        if (record_death(end))
          ++died;
        else
          held_.push_back(one.index);
        events_.remove(process.handle.value());  // a rank that has not begun its program has the descriptor, too
        process.handle.reset();
      }
    }
  }
  return died;
}

int end_watch::take_held(std::vector<rank_end>& ends) {
  return static_cast<int>(
      std::erase_if(held_, [&](int index) { return record_death(ends[static_cast<std::size_t>(index)]); }));
}

// A program may have had more than one world; the last one that failed may be why it ends.
void end_watch::hear(const rank_process& process, rank_end& end) noexcept {
  for (std::int32_t rank; process.breath && ::recv(process.breath.value(), &rank, sizeof rank, MSG_DONTWAIT) ==
                                                static_cast<ssize_t>(sizeof rank);)
    end.blames = rank;
}

bool end_watch::record_death(rank_end& end) const noexcept {
  siginfo_t how{};
  if (::waitid(P_PID, static_cast<id_t>(end.pid), &how, WEXITED | WNOHANG) != 0 || how.si_pid == 0) return false;
  end.ended = true;
  end.by_launcher = end.died.order > ending_from_;
  end.code = how.si_code;
  end.status = how.si_status;
  return true;
}

}  // namespace tutti::launch
