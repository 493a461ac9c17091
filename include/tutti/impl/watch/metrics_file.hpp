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
#include <tutti/os/host.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/metrics_file.hpp>

namespace tutti::watch {

namespace detail {

/// Returns a name that this machine keeps when it boots again; empty if it has none, as in many containers.
TUTTI_DECL std::string lasting_name() {
  std::string id = os::read_file("/etc/machine-id", 64).value_or("");
  while (id.ends_with('\n')) id.pop_back();
  // Machines that were made of one image may have the same number, and others the same host name.
  return id.empty() ? id : os::hostname() + '/' + id;
}

/// Returns the first line of a file of metrics, a comment that tells who writes it.
TUTTI_DECL std::string writer_line() {
  const ::pid_t pid = ::getpid();
  return "# Written on " + kernel_and_pids() + " of " + lasting_name() + " by process " + std::to_string(pid) + ' ' +
         std::to_string(os::process_start_time(pid).value_or(0)) + '\n';
}

TUTTI_DECL std::string_view word_after(std::string_view line, std::string_view before) noexcept {
  const std::size_t at = line.find(before);
  if (at == line.npos) return {};
  line.remove_prefix(at + before.size());
  return line.substr(0, line.find(' '));
}

/// Returns true if the process that has written this first line has ended. Nothing is known
/// about processes of other machines and containers, but that a boot of this machine has ended all of its own.
TUTTI_DECL bool has_ended(std::string_view line) {
  const std::string_view kernel = word_after(line, "# Written on "), machine = word_after(line, " of ");
  const std::string own = kernel_and_pids();
  if (kernel != own) {
    const std::string_view boot = kernel.substr(0, kernel.find('/')),
                           now = std::string_view{own}.substr(0, own.find('/'));
    return !machine.empty() && machine == lasting_name() && !boot.empty() && !now.empty() && boot != now;
  }
  const std::string_view pid = word_after(line, " by process ");
  const std::string_view start = word_after(line, " by process " + std::string(pid) + ' ');
  ::pid_t number = 0;
  std::uint64_t start_time = 0;
  return std::from_chars(pid.data(), pid.data() + pid.size(), number).ec == std::errc{} &&
         std::from_chars(start.data(), start.data() + start.size(), start_time).ec == std::errc{} &&
         !os::is_alive(number, start_time);
}

/// Removes the files of metrics whose processes have ended, as far as that is known.
TUTTI_DECL void remove_ended_metrics(const std::string& folder) {
  const std::unique_ptr<::DIR, int (*)(::DIR*)> all{::opendir(folder.c_str()), ::closedir};
  while (const ::dirent* const file = all ? ::readdir(all.get()) : nullptr) {
    const std::string_view name = file->d_name;
    if (!name.starts_with("tutti_") || !name.ends_with(".prom")) continue;
    const std::string path = folder + '/' + file->d_name;
    const std::string text = os::read_file(path, 512).value_or("");
    if (has_ended(std::string_view{text}.substr(0, text.find('\n')))) ::unlink(path.c_str());
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
