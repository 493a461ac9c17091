#pragma once
#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <tutti/config.hpp>
#include <tutti/core/text.hpp>
#include <tutti/os/atomic_file.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/metrics_file.hpp>

namespace tutti::watch {

namespace detail {

TUTTI_DECL std::string metric_number(double x) {
  char text[40];
  return {std::begin(text), std::to_chars(std::begin(text), std::end(text), x).ptr};
}

/// Returns a text as a label's value, in quotes.
TUTTI_DECL std::string label_value(std::string_view t) {
  std::string text = "\"";
  for (const char c : t) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

TUTTI_DECL std::uint64_t resident_bytes() {
  const std::string statm = os::read_file("/proc/self/statm", 128).value_or("");
  const std::size_t second = statm.find(' ');
  std::uint64_t pages = 0;
  if (second != std::string::npos) std::from_chars(statm.data() + second + 1, statm.data() + statm.size(), pages);
  return pages * os::page_bytes();
}

/// Returns what begins the first line of a file of metrics, a comment; the process that writes it and its start time
/// follow.
TUTTI_DECL std::string begin_of_writer() { return "# Written on " + kernel_and_pids() + " by process "; }

TUTTI_DECL std::string writer_line() {
  const ::pid_t pid = ::getpid();
  return begin_of_writer() + std::to_string(pid) + ' ' + std::to_string(os::process_start_time(pid).value_or(0)) + '\n';
}

/// Removes the files of metrics whose processes have ended. Those of other machines and containers stay: nothing is
/// known about their processes.
TUTTI_DECL void remove_ended_metrics(const std::string& folder) {
  const std::unique_ptr<::DIR, int (*)(::DIR*)> all{::opendir(folder.c_str()), ::closedir};
  const std::string begin = begin_of_writer();
  while (const ::dirent* const file = all ? ::readdir(all.get()) : nullptr) {
    const std::string_view name = file->d_name;
    if (!name.starts_with("tutti_") || !name.ends_with(".prom")) continue;
    const std::string path = folder + '/' + file->d_name;
    const std::string text = os::read_file(path, 256).value_or("");
    if (!text.starts_with(begin)) continue;
    ::pid_t pid = 0;
    std::uint64_t start_time = 0;
    const char* const end = text.data() + text.size();
    const char* const space = std::from_chars(text.data() + begin.size(), end, pid).ptr;
    if (space != end && std::from_chars(space + 1, end, start_time).ec == std::errc{} && !os::is_alive(pid, start_time))
      ::unlink(path.c_str());
  }
}

}  // namespace detail

TUTTI_DECL std::string metrics_path(const std::string& folder, const std::string& job, int rank, std::uint32_t number) {
  return folder + "/tutti_" + ::tutti::detail::name_part(job) + "_rank_" + std::to_string(rank) +
         (number > 1 ? "_world" + std::to_string(number) : "") + ".prom";
}

TUTTI_DECL metrics_file::metrics_file(const std::string& folder, int rank, int size, std::uint32_t number,
                                      const std::string& job, std::int64_t now)
    : path_(metrics_path(folder, job, rank, number)),
      writer_(detail::writer_line()),
      labels_("job_name=" + detail::label_value(job) + ",rank=\"" + std::to_string(rank) + '"' +
              (number > 1 ? ",world=\"" + std::to_string(number) + '"' : std::string())),
      size_(size),
      written_(now),
      last_end_(now) {
  detail::remove_ended_metrics(folder);
  write_out();
}

TUTTI_DECL metrics_file::~metrics_file() {
  try {
    left_ = true;
    written_ = (std::max)(written_, last_end_);
    write_out();
  } catch (const std::exception&) {  // the last figures are missing
  }
}

TUTTI_DECL void metrics_file::take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                                   const call_site&) {
  counts& c = calls_[(std::min)(std::size_t{o.call.number}, calls_.size() - 1)];
  const double seconds = static_cast<double>((std::max)(ended - issued, std::int64_t{0})) / 1e9;
  ++c.ended;
  if (o.state == progress::failed) ++c.failed;
  c.bytes += o.count * o.element_bytes;
  c.seconds += seconds;
  if (started > issued) c.waited += static_cast<double>(started - issued) / 1e9;
  ++c.within[static_cast<std::size_t>(std::ranges::lower_bound(limits, seconds) - limits.begin())];
  last_end_ = (std::max)(last_end_, ended);
}

TUTTI_DECL void metrics_file::end_batch(std::int64_t now) {
  constexpr std::int64_t between = 5'000'000'000;
  if (now - written_ < between) return;
  written_ = now;
  write_out();
}

TUTTI_DECL void metrics_file::write_out() {
  std::string text = writer_;
  const auto begin = [&](const char* name, const char* type, const char* help) {
    text += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
  };
  const auto line = [&](const std::string& name, const std::string& more, const std::string& value) {
    text += name + '{' + labels_ + more + "} " + value + '\n';
  };
  const auto for_calls = [&](auto value) {
    for (std::size_t i = 0; i < calls_.size(); ++i)
      if (calls_[i].ended != 0)
        value(calls_[i], std::string(",call=\"") + call_kind{static_cast<std::uint8_t>(i)}.name() + '"');
  };
  using detail::metric_number;

  begin("tutti_world_ranks", "gauge", "Ranks of the world.");
  line("tutti_world_ranks", "", std::to_string(size_));
  begin("tutti_world_open", "gauge", "1 until the rank leaves its world, then 0.");
  line("tutti_world_open", "", left_ ? "0" : "1");
  begin("tutti_last_operation_timestamp_seconds", "gauge",
        "Time at which an operation last ended, or the rank joined.");
  line("tutti_last_operation_timestamp_seconds", "", metric_number(static_cast<double>(last_end_) / 1e9));
  begin("tutti_last_seen_timestamp_seconds", "gauge", "Time at which the rank was last in a call or wait of tutti.");
  line("tutti_last_seen_timestamp_seconds", "", metric_number(static_cast<double>(written_) / 1e9));
  begin("tutti_process_resident_memory_bytes", "gauge", "Memory of this process.");
  line("tutti_process_resident_memory_bytes", "", std::to_string(detail::resident_bytes()));

  begin("tutti_operation_failures_total", "counter", "Operations that have failed.");
  for_calls([&](const counts& c, const std::string& call) {
    line("tutti_operation_failures_total", call, std::to_string(c.failed));
  });
  begin("tutti_operation_bytes_total", "counter", "Bytes of the buffers of operations that have ended.");
  for_calls([&](const counts& c, const std::string& call) {
    line("tutti_operation_bytes_total", call, std::to_string(c.bytes));
  });
  begin("tutti_operation_wait_seconds_total", "counter", "Time until operations heard of other ranks.");
  for_calls([&](const counts& c, const std::string& call) {
    line("tutti_operation_wait_seconds_total", call, metric_number(c.waited));
  });
  begin("tutti_operation_duration_seconds", "histogram", "Time from the issue of operations to their end.");
  for_calls([&](const counts& c, const std::string& call) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < c.within.size(); ++i) {
      sum += c.within[i];
      const std::string limit = i < limits.size() ? metric_number(limits[i]) : "+Inf";
      line("tutti_operation_duration_seconds_bucket", call + ",le=\"" + limit + '"', std::to_string(sum));
    }
    line("tutti_operation_duration_seconds_sum", call, metric_number(c.seconds));
    line("tutti_operation_duration_seconds_count", call, std::to_string(c.ended));
  });

  os::atomic_file file{path_};
  file.write(std::as_bytes(std::span{text}));
  file.commit_to_processes();
}

}  // namespace tutti::watch
