#include "tutti-run/status/show.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/status/jobs.hpp"
#include "tutti-run/status/server.hpp"
#include "tutti-run/status/table.hpp"

namespace tutti::launch {
namespace {

constexpr std::chrono::seconds between{1};

struct status_words {
  std::optional<pid_t> process;
  enum class form { table, json, encoded } as = form::table;
};

status_words parse(int argc, char** argv) {
  status_words said;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), pid);
    if (word == "--json") {
      said.as = status_words::form::json;
    } else if (word == "--encoded") {  // between launchers
      said.as = status_words::form::encoded;
    } else if (!said.process && error == std::errc{} && end == word.data() + word.size() && pid > 0) {
      said.process = pid;
    } else {
      throw failure(2, text("--status wants nothing, --json, or the number of a process of the job, and got '", word,
                            "' (see tutti-run --help)"));
    }
  }
  return said;
}

machine_ranks ranks_of(running_job job) {
  if (job.server != 0) return ask_status_server(job.server);
  return {std::move(job.ranks), {}};
}

/// The ranks of one launcher, without those of launchers below it.
held_ranks ranks_below(pid_t supervisor) {
  held_ranks all = read_ranks();
  std::erase_if(all.recordings, [&](const auto& one) { return one.supervisor != supervisor; });
  std::erase_if(all.waiting, [&](const auto& one) { return one.supervisor != supervisor; });
  return all;
}

int print(const std::string& words) {
  std::fwrite(words.data(), 1, words.size(), stdout);
  return std::fflush(stdout);
}

table_limits size_of_terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {24, 80};
  return {size.ws_row - 1U, size.ws_col};
}

/// Writes each table over the one before.
int keep_showing(running_job job) {
  const pid_t process = job.process;
  machine_ranks ranks = ranks_of(std::move(job));
  for (std::size_t lines = 0;;) {
    const auto shown = status_table(ranks, size_of_terminal());
    std::string screen = lines == 0 ? "" : text("\033[", lines, "A\r");
    for (std::string_view rest = shown.text; !rest.empty();) {
      const auto end = rest.find('\n');
      screen += text(rest.substr(0, end), "\033[K\n");
      rest.remove_prefix(end + 1);
    }
    lines = static_cast<std::size_t>(std::ranges::count(shown.text, '\n'));
    if (print(screen + "\033[J") != 0) return 1;
    std::this_thread::sleep_for(between);
    try {
      ranks = ranks_of(find_job(process));
    } catch (const failure&) {
      if (!is_exiting(process)) throw;
      print("The job has ended.\n");
      return shown.stuck ? 1 : 0;
    }
  }
}

}  // namespace

int show_status(int argc, char** argv) {
  const status_words said = parse(argc, argv);
  if (said.as == status_words::form::encoded) return print(encode(ranks_below(said.process.value_or(0))));
  running_job job = find_job(said.process);
  if (said.as == status_words::form::table && ::isatty(STDOUT_FILENO) == 1) return keep_showing(std::move(job));
  const machine_ranks all = ranks_of(std::move(job));
  const auto shown = said.as == status_words::form::json ? status_json(all) : status_table(all, {});
  print(shown.text);
  return shown.stuck ? 1 : 0;
}

}  // namespace tutti::launch
