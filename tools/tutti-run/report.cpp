#include "tutti-run/report.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "tutti-run/signals.hpp"

namespace tutti::launch {
namespace {

constexpr int status_of_timeout = 124;
constexpr int signal_base = 128;

std::string seconds(clock::duration time) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3f s", std::chrono::duration<double>(time).count());
  return digits.data();
}

std::string how(const rank_end& rank) {
  if (!rank.lost.empty()) return rank.lost;
  if (rank.code == CLD_EXITED) return text("exit code ", rank.status);
  return text("killed by ", signal_name(rank.status), rank.code == CLD_DUMPED ? " (core dumped)" : "");
}

template <class Predicate>
std::vector<int> select(const job_summary& job, const Predicate& wanted) {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank)
    if (wanted(job.ranks[rank])) found.push_back(static_cast<int>(rank));
  return found;
}

std::string named(const job_summary& job, const std::vector<int>& indices) {
  return text(indices.size() == 1 ? "rank " : "ranks ", rank_list(indices, job.names.first));
}

// The index of the rank that this one was told of, if it is one of this launcher's; else -1.
int blamed_by(const job_summary& job, int index) noexcept {
  const int blamed = job.ranks[static_cast<std::size_t>(index)].blames - job.names.first;
  return blamed >= 0 && static_cast<std::size_t>(blamed) < job.ranks.size() ? blamed : -1;
}

// The rank that was the first to end with a failure, -1 if none was.
int first_to_end(const job_summary& job) noexcept {
  int first = -1;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const auto& candidate = job.ranks[rank];
    if (!candidate.failed()) continue;
    if (first < 0 || candidate.died.order < job.ranks[static_cast<std::size_t>(first)].died.order)
      first = static_cast<int>(rank);
  }
  return first;
}

// The rank that failed first, -1 if none did. One that ends because another has told it of a failure may well end
// before that one, which is busy with its own exception: whom it blames comes before it, if that one failed, too.
int first_failure(const job_summary& job) noexcept {
  const int first = first_to_end(job);
  int cause = first;
  for (std::size_t steps = 0; cause >= 0; ++steps) {
    const int blamed = blamed_by(job, cause);
    const bool failed = blamed >= 0 && job.ranks[static_cast<std::size_t>(blamed)].failed();
    if (!failed || blamed == cause) return cause;
    if (steps == job.ranks.size()) return first;  // they blame each other
    cause = blamed;
  }
  return cause;
}

void describe_cause(std::string& lines, const job_summary& job, const output& shown, int rank) {
  const auto& cause = job.ranks[static_cast<std::size_t>(rank)];
  const std::string name = job.names.said(rank);
  const std::string pid = cause.lost.empty() ? text(" (pid ", cause.pid, ')') : "";
  lines += text("tutti-run: ", name, pid, " failed first, ", seconds(cause.died.at - job.started),
                " after the start: ", how(cause), '\n');
  if (const int before = first_to_end(job); before != rank)
    lines += text("tutti-run: ", job.names.said(before), " ended before it, but had been told of its failure\n");
  else if (const int blamed = blamed_by(job, rank); blamed >= 0)
    lines += text("tutti-run: ", name, " had been told of a failure of ", job.names.said(blamed), '\n');
  else if (cause.blames >= 0 && static_cast<int>(job.ranks.size()) < job.world)
    lines += text("tutti-run: ", name, " had been told of a failure of rank ", cause.blames, ", on another machine\n");
  if (cause.lost.empty() && cause.code == CLD_KILLED && cause.status == SIGKILL)
    lines += text("tutti-run: nobody here sent that signal; if memory ran out, the kernel's log says so (dmesg",
                  job.names.hosts.empty() ? "" : text(" on ", job.names.hosts[static_cast<std::size_t>(rank)]), ")\n");
  if (!shown.captures(rank)) return;
  const auto& tail = shown.tail(rank);
  lines += tail.empty() ? text("tutti-run: ", name, " wrote nothing to stderr\n")
                        : text("tutti-run: the last lines of ", name, " on stderr:\n");
  for (const auto& line : tail) lines += text("  | ", line, '\n');
}

void describe_later_failures(std::string& lines, const job_summary& job, int cause) {
  constexpr std::size_t most = 8;
  auto later = select(
      job, [&](const rank_end& rank) { return rank.failed() && &rank != &job.ranks[static_cast<std::size_t>(cause)]; });
  const auto end_of = [&](int rank) -> const rank_end& { return job.ranks[static_cast<std::size_t>(rank)]; };
  std::ranges::sort(later, {}, [&](int rank) { return end_of(rank).died.order; });
  if (later.empty()) return;
  lines += "tutti-run: failed after it: ";
  for (std::size_t i = 0; i < std::min(later.size(), most); ++i) {
    const auto after = end_of(later[i]).died.at - end_of(cause).died.at;
    const bool earlier = end_of(later[i]).died.order < end_of(cause).died.order;
    lines += text(i == 0 ? "" : "; ", job.names.said(later[i]), " (", how(end_of(later[i])), ", ",
                  seconds(earlier ? -after : after), earlier ? " earlier)" : " later)");
  }
  lines += later.size() > most ? text("; and ", later.size() - most, " more\n") : "\n";
}

void describe_ended(std::string& lines, const job_summary& job) {
  const auto killed = select(
      job, [](const rank_end& rank) { return rank.by_launcher && rank.code == CLD_KILLED && rank.status == SIGKILL; });
  const auto stopped = select(job, [](const rank_end& rank) {
    return rank.by_launcher && rank.lost.empty() && !(rank.code == CLD_KILLED && rank.status == SIGKILL);
  });
  const auto lost = select(job, [](const rank_end& rank) { return rank.by_launcher && !rank.lost.empty(); });
  if (!stopped.empty()) lines += text("tutti-run: ended by tutti-run with SIGTERM: ", named(job, stopped), '\n');
  if (!killed.empty())
    lines += text("tutti-run: still ran ", seconds(job.killing - job.ending),
                  " after SIGTERM and had to be killed: ", named(job, killed), '\n');
  if (lost.empty()) return;
  lines += text("tutti-run: not known to have ended: ", named(job, lost));
  std::string_view last;
  for (const int index : lost)
    if (const std::string_view host = job.names.hosts[static_cast<std::size_t>(index)]; host != last) {
      last = host;
      lines += text(index == lost.front() ? " (" : "; ", host, ": ", job.ranks[static_cast<std::size_t>(index)].lost);
    }
  lines += ")\n";
}

}  // namespace

std::string rank_list(const std::vector<int>& ranks, int base) {
  std::string list;
  for (std::size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    for (last = first; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1;) ++last;
    if (!list.empty()) list += ", ";
    list += last == first ? text(base + ranks[first]) : text(base + ranks[first], '-', base + ranks[last]);
  }
  return list;
}

std::string describe(const job_summary& job, const output& shown) {
  std::string lines;
  const int cause = first_failure(job);
  if (cause >= 0) describe_cause(lines, job, shown, cause);
  if (cause >= 0) describe_later_failures(lines, job, cause);
  const auto when = seconds(job.ending - job.started);
  if (job.end == job_end::interrupted)
    lines += text("tutti-run: interrupted by ", signal_name(job.interrupt), ", ", when, " after the start\n");
  if (job.end == job_end::timed_out) lines += text("tutti-run: the job did not end within ", when, " (--timeout)\n");
  if (cause >= 0 || job.end != job_end::by_itself) describe_ended(lines, job);
  if (job.gave_up) {
    const auto alive = select(job, [](const rank_end& rank) { return !rank.ended; });
    lines += text("tutti-run: SIGKILL did not end ", alive.empty() ? "what the ranks had started" : named(job, alive),
                  ": stuck inside the kernel (state D in ps) or held by a debugger\n");
  }
  return lines;
}

int exit_status(const job_summary& job) noexcept {
  if (const int cause = first_failure(job); cause >= 0) {
    const auto& rank = job.ranks[static_cast<std::size_t>(cause)];
    if (!rank.lost.empty()) return 1;
    return rank.code == CLD_EXITED ? rank.status : signal_base + rank.status;
  }
  if (std::ranges::any_of(job.ranks, [](const rank_end& rank) { return !rank.lost.empty(); })) return 1;
  switch (job.end) {
    case job_end::by_itself:
      return job.gave_up ? 1 : 0;
    case job_end::interrupted:
      return signal_base + job.interrupt;
    case job_end::timed_out:
      return status_of_timeout;
  }
  return 1;
}

}  // namespace tutti::launch
