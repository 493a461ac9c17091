#pragma once
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/text.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti::detail {

/// Folder and signal for the dumps of a flight recorder, as the options or the environment say.
struct flight_options {
  std::string folder;  ///< empty: only on request
  int signal = 0;      ///< 0: none
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

/// Reads the options and TUTTI_FLIGHT_DIR and TUTTI_FLIGHT_SIGNAL, makes the folder, and handles the signal. Throws
/// usage_error.
template <variable_lookup Get>
flight_options flight_options_of(const init_options& options, const Get& get) {
  flight_options chosen;
  const bool own = !options.flight.empty();
  chosen.folder = own ? options.flight : std::string(get("TUTTI_FLIGHT_DIR").value_or(""));
  const std::string text = options.flight_signal != 0 ? std::to_string(options.flight_signal)
                                                      : std::string(get("TUTTI_FLIGHT_SIGNAL").value_or(""));
  const char* const source = options.flight_signal != 0 ? "init_options::flight_signal " : "TUTTI_FLIGHT_SIGNAL ";
  if (chosen.folder.empty()) {
    if (!text.empty())
      throw usage_error(source + detail::quoted(text) + " needs a folder to dump into: set TUTTI_FLIGHT_DIR as well");
    return chosen;
  }
  std::error_code why;
  std::filesystem::create_directories(chosen.folder, why);
  if (!why && ::access(chosen.folder.c_str(), W_OK | X_OK) != 0) why = {errno, std::generic_category()};
  if (why)
    throw usage_error((own ? "init_options::flight " : "TUTTI_FLIGHT_DIR ") + detail::quoted(chosen.folder) +
                      " is no folder that this rank can write to: " + why.message());
  if (text.empty()) return chosen;
  chosen.signal = signal_of(text);
  if (chosen.signal <= 0)
    throw usage_error(source + detail::quoted(text) + " is no signal; write USR1, USR2, HUP, QUIT, WINCH or a number");
  watch::flight_recorder::dump_on(chosen.signal);
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

/// Returns the place of the recording of a world that this process has joined. Counts the worlds of this process.
inline watch::flight_place flight_place_of(const flight_options& chosen, const roster& all, std::string job) {
  static std::atomic<std::uint32_t> worlds{0};
  std::uint64_t world = fnv(fnv_start, job);
  for (const rank_info& p : all) world = mix(fnv(world, p.host), mix(static_cast<std::uint64_t>(p.pid), p.start_time));
  const std::uint32_t number = ++worlds;
  return {chosen.folder, std::move(job), mix(world, number), number};
}

}  // namespace tutti::detail
