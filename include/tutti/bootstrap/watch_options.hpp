#pragma once
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/log.hpp>
#include <tutti/core/text.hpp>
#include <tutti/os/make_folders.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/watch/flight_recorder.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/metrics.hpp>
#include <tutti/watch/metrics_endpoint.hpp>
#include <tutti/watch/metrics_file.hpp>
#include <tutti/watch/trace_file.hpp>

namespace tutti::detail {

/// Folders for what can be seen from outside, as the options or the environment say; empty: none.
struct watch_options {
  std::string flight, trace, metrics;
  int metrics_port = 0;     ///< of the first rank of each machine; 0: none
  std::string metrics_job;  ///< name of the job in metrics; empty: that of the launcher
};

/// Returns the number of a signal that is named as USR2, SIGUSR2 or 12; 0 for any other text.
inline int signal_of(std::string_view text) noexcept {
  if (const auto number = parse_decimal<int>(text)) return *number;
  if (text.starts_with("SIG")) text.remove_prefix(3);
  constexpr std::array<std::pair<std::string_view, int>, 5> known{
      {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"QUIT", SIGQUIT}, {"WINCH", SIGWINCH}}};
  for (const auto& [name, number] : known)
    if (name == text) return number;
  return 0;
}

/// Returns the folder of an option or, if that is empty, of a variable, and makes it. Throws usage_error.
template <variable_lookup Get>
std::string folder_of(const std::string& option, const char* option_name, const char* variable, const Get& get) {
  const std::string folder = option.empty() ? std::string(get(variable).value_or("")) : option;
  if (folder.empty()) return folder;
  int why = os::make_folders(folder);
  if (why == 0 && ::access(folder.c_str(), W_OK | X_OK) != 0) why = errno;
  if (why != 0)
    throw usage_error((option.empty() ? std::string(variable) : std::string("init_options::") + option_name) + " " +
                      detail::quoted(folder) + " is no folder that this rank can write to: " + os::errno_text(why));
  return folder;
}

/// Makes a signal dump the flight recorders, if an option or TUTTI_FLIGHT_SIGNAL asks for it. Throws usage_error.
template <variable_lookup Get>
void dump_on_signal(const init_options& options, bool has_folder, const Get& get) {
  const bool own = options.flight_signal != 0;
  const std::string text =
      own ? std::to_string(options.flight_signal) : std::string(get("TUTTI_FLIGHT_SIGNAL").value_or(""));
  if (text.empty()) return;
  const std::string source = (own ? "init_options::flight_signal " : "TUTTI_FLIGHT_SIGNAL ") + detail::quoted(text);
  if (!has_folder) throw usage_error(source + " needs a folder to dump into: set TUTTI_FLIGHT_DIR as well");
  const int signal = signal_of(text);
  if (signal <= 0) throw usage_error(source + " is no signal; write USR1, USR2, HUP, QUIT, WINCH or a number");
  watch::flight_recorder::dump_on(signal);
}

/// Returns the port of an option or of TUTTI_METRICS_PORT; 0 for none. Throws usage_error.
template <variable_lookup Get>
int metrics_port_of(const init_options& options, const Get& get) {
  const bool own = options.metrics_port != 0;
  const std::string text =
      own ? std::to_string(options.metrics_port) : std::string(get("TUTTI_METRICS_PORT").value_or(""));
  if (text.empty()) return 0;
  const auto port = parse_decimal<int>(text);
  if (!port || *port <= 0 || *port > 65535)
    throw usage_error((own ? "init_options::metrics_port " : "TUTTI_METRICS_PORT ") + detail::quoted(text) +
                      " is no port; write a number from 1 to 65535");
  return *port;
}

/// Reads the options and TUTTI_FLIGHT_DIR, TUTTI_TRACE_DIR, TUTTI_METRICS_DIR, TUTTI_METRICS_PORT,
/// TUTTI_METRICS_JOB and TUTTI_FLIGHT_SIGNAL. Throws usage_error.
template <variable_lookup Get>
watch_options watch_options_of(const init_options& options, const Get& get) {
  watch_options chosen{folder_of(options.flight, "flight", "TUTTI_FLIGHT_DIR", get),
                       folder_of(options.trace, "trace", "TUTTI_TRACE_DIR", get),
                       folder_of(options.metrics, "metrics", "TUTTI_METRICS_DIR", get), metrics_port_of(options, get),
                       std::string(get("TUTTI_METRICS_JOB").value_or(""))};
  dump_on_signal(options, !chosen.flight.empty(), get);
  return chosen;
}

/// Returns the time after which a stall is warned of, by the options or TUTTI_STALL_WARNING. Throws usage_error.
template <variable_lookup Get>
duration stall_warning_of(const init_options& options, const Get& get) {
  constexpr int most = 30'000'000;  // about a year, far below the range of a duration
  if (options.stall_warning) {
    if (*options.stall_warning < duration{0} || *options.stall_warning > std::chrono::seconds(most))
      throw usage_error("init_options::stall_warning must be 0, for never, or a time of up to a year");
    return *options.stall_warning;
  }
  const auto text = get("TUTTI_STALL_WARNING");
  if (!text) return std::chrono::seconds(30);
  const auto seconds = parse_decimal<int>(*text);
  if (!seconds || *seconds > most)
    throw usage_error("environment: " + show("TUTTI_STALL_WARNING", *text) +
                      " is not a number of seconds, nor 0 for never");
  return std::chrono::seconds(*seconds);
}

/// Returns the place of the recording of a world that this process has joined. Counts the worlds of this process; other
/// ranks may have joined more of them, so the number is no part of the world's id.
inline watch::flight_place flight_place_of(const watch_options& chosen, const roster& all, std::string job) {
  std::uint64_t world = fnv(fnv_start, job);
  for (const rank_info& p : all)
    world = mix(mix(fnv(world, p.host), p.token), mix(static_cast<std::uint64_t>(p.pid), p.start_time));
  return {chosen.flight, std::move(job), world, watch::flight_recorder::next_number()};
}

/// Returns what the metrics say about a rank, and their way to its transport, which outlives the recorder.
template <class Link>
watch::metrics_place metrics_place_of(const std::string& name, const watch::flight_place& place, const Link& link,
                                      std::int64_t now) {
  const std::string job = !name.empty()        ? name
                          : !place.job.empty() ? place.job
                                               : "world-" + std::to_string(place.world);
  const int rank = link.rank();
  const rank_info& self = link.peers()[static_cast<std::size_t>(rank)];
  watch::metrics_place where{job, rank, self.local_rank, link.size(), place.number, now};
  if constexpr (requires { link.shared_bytes(); }) {
    where.transport = &link;
    where.read = [](const void* transport) noexcept {
      const auto& of = *static_cast<const Link*>(transport);
      return watch::transport_figures{of.shared_bytes(), of.connection_retries()};
    };
  }
  return where;
}

/// Starts to serve the metrics of a rank over HTTP. Throws usage_error, if there is no such port, or error: it is
/// taken.
inline std::unique_ptr<watch::metrics_endpoint> serve_metrics(int first_port, watch::metrics_place where) {
  const int port = first_port + where.local_rank;
  if (port > 65535)
    throw usage_error("rank " + std::to_string(where.local_rank) + " of this machine would have port " +
                      std::to_string(port) + ", but ports end at 65535; choose another TUTTI_METRICS_PORT");
  return std::make_unique<watch::metrics_endpoint>(static_cast<std::uint16_t>(port), std::move(where));
}

/// Makes the files of a rank's world, which `engine` drives, and serves its metrics. A folder that takes no file and a
/// port that is taken are warned of: the other ranks have a world already, which must not end for that.
template <class Link>
void start_watching(const watch_options& chosen, const Link& link, std::string job, tutti::engine& engine,
                    watch::flight_recorder& recorder) {
  const watch::flight_place place = flight_place_of(chosen, link.peers(), std::move(job));
  const auto attempt = [](const char* what, auto make) {
    try {
      make();
    } catch (const std::exception& e) {
      log(log_level::warning, "this rank has no " + std::string(what) + ": " + e.what());
    }
  };
  attempt("file of the flight recorder", [&] { recorder.keep_in(place); });
  const std::int64_t now = os::read_clocks().wall;
  if (!chosen.trace.empty())
    attempt("trace",
            [&] { recorder.send_to(std::make_unique<watch::trace_file>(chosen.trace, recorder.memory().head, now)); });
  const auto metrics = [&] { return metrics_place_of(chosen.metrics_job, place, link, now); };
  if (!chosen.metrics.empty())
    attempt("file of metrics",
            [&] { recorder.send_to(std::make_unique<watch::metrics_file>(chosen.metrics, metrics())); });
  if (chosen.metrics_port != 0)
    attempt("metrics over HTTP", [&] { recorder.send_to(serve_metrics(chosen.metrics_port, metrics())); });
  if (!chosen.trace.empty() || !chosen.metrics.empty() || chosen.metrics_port != 0)
    recorder.send_spans_of(engine.spans().make());
}

}  // namespace tutti::detail
