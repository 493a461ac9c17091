#pragma once
#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/core/log.hpp>
#include <tutti/core/text.hpp>
#include <tutti/os/atomic_file.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/metrics_file.hpp>

namespace tutti::watch {

namespace detail {

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

TUTTI_DECL metrics_file::metrics_file(const std::string& folder, metrics_place where)
    : path_(metrics_path(folder, where.job, where.rank, where.number)),
      writer_(detail::writer_line()),
      counted_(std::move(where)),
      written_(counted_.where().joined),
      gpus_(gpu_readings::shared()) {
  detail::remove_ended_metrics(folder);
  counted_.see(written_);
  write_out();
}

TUTTI_DECL metrics_file::~metrics_file() {
  try {
    counted_.leave();
    write_out();
  } catch (const std::exception&) {  // the last figures are missing
  }
}

TUTTI_DECL void metrics_file::take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                                   const call_site&) {
  counted_.take(o, issued, started, ended);
}

TUTTI_DECL void metrics_file::take_span(const ::tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                                        std::int64_t ended) {
  counted_.take_span(s, begun, middle, ended);
}

TUTTI_DECL void metrics_file::end_batch(std::int64_t now) {
  constexpr std::int64_t between = 5'000'000'000;
  if (now - written_ < between) return;
  written_ = now;
  counted_.see(now);
  // The recorder lets go of a sink that fails, and a rank without metrics looks like one that has left.
  try {
    write_out();
    warned_ = false;
  } catch (const std::exception& e) {
    if (!std::exchange(warned_, true)) ::tutti::detail::log(log_level::warning, e.what());
  }
}

TUTTI_DECL void metrics_file::write_out() {
  const std::string text = writer_ + text_of(std::span{&counted_, 1}, gpus_->last());
  os::atomic_file file{path_};
  file.write(std::as_bytes(std::span{text}));
  file.commit_to_processes();
}

}  // namespace tutti::watch
