#include "tutti-run/options.hpp"

#include <getopt.h>

#include <array>
#include <charconv>
#include <cmath>

#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/devices.hpp"
#include "tutti-run/ranks/environment.hpp"

namespace tutti::launch {
namespace {

constexpr std::string_view help =
    R"(usage: tutti-run -n RANKS [options] [--] program [argument ...]

Starts RANKS copies of a program on this machine, shows what they print as
"[rank] line", and leaves no process behind, however the job ends.

  -n RANKS            how many ranks to start
  --output MODE       prefix  "[rank] line" (default; but a single rank on a
                              terminal writes to it directly)
                      plain   ranks write to this terminal or file themselves
                      rank0   only rank 0 is shown, as in plain
  --env NAME=VALUE    set a variable in every rank; may be repeated
  --bind HOW          none    (default)
                      core    rank r runs on the r-th of the CPUs allowed here
                              and begins again when there are no more
                      numa    ranks are spread over the NUMA nodes, neighbours
                              together, each on all CPUs of its node that are
                              allowed here; on one node the same as none
  --devices LIST      the GPUs of the ranks, as in 4,5,6,7 or GPU-8d4f...: each
                      rank sees its own only (CUDA_VISIBLE_DEVICES), as device 0
  --timeout SECONDS   end the job after this time
  --settle SECONDS    after the first failure, leave the other ranks this time
                      to end by themselves and say why (default: 1)
  --grace SECONDS     from SIGTERM to SIGKILL (default: 5)
  -h, --help          show this text

Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT in their environment. Rank 0 reads this program's stdin.

Exit status: that of the rank that failed first (128 + its number for a
signal), 0 if none did; 124 after --timeout, 126 or 127 if the program cannot
be run or found, 2 for a mistake on the command line, 1 if output was lost.

Example:  tutti-run -n 4 --env OMP_NUM_THREADS=1 ./train --epochs 3
)";

[[noreturn]] void refuse(const std::string& what) { throw failure(2, text(what, " (see tutti-run --help)")); }

int rank_count(std::string_view value) {
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error == std::errc::result_out_of_range) refuse(text("-n ", value, " is too large"));
  if (error != std::errc{} || end != value.data() + value.size() || count < 1)
    refuse(text("-n wants the number of ranks, 1 or more, and got '", value, "'"));
  return count;
}

std::chrono::milliseconds duration(std::string_view option, std::string_view value) {
  constexpr int most = 30'000'000;  // about a year: far below where a time point would overflow
  double seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc{} || end != value.data() + value.size() || !(seconds >= 0) || seconds > most)
    refuse(text(option, " wants a time of 0 to ", most, " seconds, such as 2.5, and got '", value, "'"));
  return std::chrono::milliseconds{std::llround(seconds * 1000)};
}

std::string assignment(std::string_view value) {
  const auto equals = value.find('=');
  if (equals == std::string_view::npos || equals == 0) refuse(text("--env wants NAME=VALUE and got '", value, "'"));
  if (const auto name = value.substr(0, equals); is_identity(name))
    refuse(text("--env cannot set ", name, ": tutti-run gives each rank its own value"));
  return std::string{value};
}

template <class Choice, std::size_t Count>
Choice choose(std::string_view option, std::string_view value,
              const std::array<std::pair<std::string_view, Choice>, Count>& choices) {
  std::string known;
  for (const auto& [name, choice] : choices) {
    if (name == value) return choice;
    known += text(known.empty() ? "" : ", ", name);
  }
  refuse(text(option, " wants one of ", known, " and got '", value, "'"));
}

}  // namespace

std::string_view help_text() noexcept { return help; }

options parse_options(int argc, char** argv) {
  enum : int { output = 256, environment, bind, devices, timeout, settle, grace };
  static constexpr std::array<option, 9> known{{{"output", required_argument, nullptr, output},
                                                {"env", required_argument, nullptr, environment},
                                                {"bind", required_argument, nullptr, bind},
                                                {"devices", required_argument, nullptr, devices},
                                                {"timeout", required_argument, nullptr, timeout},
                                                {"settle", required_argument, nullptr, settle},
                                                {"grace", required_argument, nullptr, grace},
                                                {"help", no_argument, nullptr, 'h'},
                                                {nullptr, 0, nullptr, 0}}};
  static constexpr std::array modes{std::pair{std::string_view{"prefix"}, output_mode::prefix},
                                    std::pair{std::string_view{"plain"}, output_mode::plain},
                                    std::pair{std::string_view{"rank0"}, output_mode::rank0}};
  static constexpr std::array bindings{std::pair{std::string_view{"none"}, binding::none},
                                       std::pair{std::string_view{"core"}, binding::core},
                                       std::pair{std::string_view{"numa"}, binding::numa}};
  options result;
  // '+': stop at the program, whose own options are none of ours. ':': we word the errors.
  for (int found = 0; (found = getopt_long(argc, argv, "+:n:h", known.data(), nullptr)) != -1;) {
    const std::string_view value = optarg ? optarg : "";
    switch (found) {
      case 'n':
        result.ranks = rank_count(value);
        break;
      case output:
        result.output = choose("--output", value, modes);
        break;
      case environment:
        result.environment.push_back(assignment(value));
        break;
      case bind:
        result.bind = choose("--bind", value, bindings);
        break;
      case devices:
        result.devices = parse_devices(value);
        break;
      case timeout:
        result.timeout = duration("--timeout", value);
        break;
      case settle:
        result.settle = duration("--settle", value);
        break;
      case grace:
        result.grace = duration("--grace", value);
        break;
      case 'h':
        return {};
      case ':':
        refuse(text(argv[optind - 1], " wants a value"));
      default:
        refuse(text("unknown option ", argv[optind - 1]));
    }
  }
  if (result.ranks == 0) refuse("the number of ranks is missing: write tutti-run -n 4 program");
  result.command.assign(argv + optind, argv + argc);
  if (result.command.empty() || result.command.front().empty())
    refuse(text("the program is missing: write tutti-run -n ", result.ranks, " program [argument ...]"));
  return result;
}

}  // namespace tutti::launch
