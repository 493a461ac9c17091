#include <getopt.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <tutti/watch/dump.hpp>

#include "tutti-flight/trace.hpp"
#include "tutti-flight/verdict.hpp"

namespace {

constexpr const char* help =
    R"(usage: tutti-flight [options] FOLDER
       tutti-flight --merge-trace FOLDER

Says which rank of a job is stuck, or was when the job failed, in which call and
since when, from the recordings that the ranks keep in FOLDER (tutti-run --flight
FOLDER, or TUTTI_FLIGHT_DIR=FOLDER). The job may still run.

  --json               print the verdict as JSON
  --dump               also write flight_<rank> and rank_<rank>.json for every
                       rank, as at a failure: for torchfrtrace, and for people
  --patience SECONDS   waits shorter than this are normal (default: 1)
  --merge-trace        write the traces of all ranks (tutti-run --trace FOLDER, or
                       TUTTI_TRACE_DIR) as FOLDER/trace.json, on one clock
  -h, --help           show this text

Exit status: 0 if nothing is stuck, 1 if a rank is or the job has failed,
2 for a mistake on the command line or a folder without recordings.
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti::flight_tool;
  enum : int { json = 256, dump, patience, merge };
  static constexpr option known[] = {{"json", no_argument, nullptr, json},
                                     {"dump", no_argument, nullptr, dump},
                                     {"patience", required_argument, nullptr, patience},
                                     {"merge-trace", no_argument, nullptr, merge},
                                     {"help", no_argument, nullptr, 'h'},
                                     {nullptr, 0, nullptr, 0}};
  bool as_json = false, dumps = false, merges = false;
  double seconds = 1;
  const auto refuse = [](const std::string& why) {
    std::fprintf(stderr, "tutti-flight: %s (see tutti-flight --help)\n", why.c_str());
    return 2;
  };
  for (int found = 0; (found = getopt_long(argc, argv, ":h", known, nullptr)) != -1;) {
    switch (found) {
      case json:
        as_json = true;
        break;
      case dump:
        dumps = true;
        break;
      case merge:
        merges = true;
        break;
      case patience: {
        const std::string_view value = optarg;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
        if (error != std::errc{} || end != value.data() + value.size() || !(seconds >= 0) || seconds > 1e6)
          return refuse("--patience wants a number of seconds, and got '" + std::string(value) + "'");
        break;
      }
      case 'h':
        std::fputs(help, stdout);
        return 0;
      case ':':
        return refuse(std::string(argv[optind - 1]) + " wants a value");
      default:
        return refuse("unknown option " + std::string(argv[optind - 1]));
    }
  }
  if (argc - optind != 1) return refuse("give one folder");
  try {
    if (merges) {
      const merged_trace made = merge_traces(argv[optind]);
      std::printf("%s: %zu ranks, %zu events; open it with ui.perfetto.dev or chrome://tracing\n", made.path.c_str(),
                  made.ranks, made.events);
      return 0;
    }
    const recorded_world w = load(argv[optind]);
    if (dumps)
      for (const recorded_rank& r : w.ranks) {
        tutti::watch::flight f = r.flight;
        f.reason = "tutti-flight";
        tutti::watch::dump(f, argv[optind]);
      }
    const verdict v =
        judge(w, std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
    std::fputs((as_json ? in_json(w, v) : in_words(w, v)).c_str(), stdout);
    return v.what == finding::nothing && !v.failed ? 0 : 1;
  } catch (const std::exception& why) {
    std::fprintf(stderr, "tutti-flight: %s\n", why.what());
    return 2;
  }
}
