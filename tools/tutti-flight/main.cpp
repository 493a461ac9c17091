#include <getopt.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <tutti/watch/dump.hpp>

#include "tutti-flight/verdict.hpp"

namespace {

constexpr const char* help =
    R"(usage: tutti-flight [options] FOLDER

Says which rank of a job is stuck, or was when the job failed, in which call and
since when, from the recordings that the ranks keep in FOLDER (tutti-run --flight
FOLDER, or TUTTI_FLIGHT_DIR=FOLDER). The job may still run.

  --json               print the verdict as JSON
  --dump               also write flight_<rank> and rank_<rank>.json for every
                       rank, as at a failure: for torchfrtrace, and for people
  --patience SECONDS   waits shorter than this are normal (default: 1)
  -h, --help           show this text

Exit status: 0 if nothing is stuck, 1 if a rank is or the job has failed,
2 for a mistake on the command line or a folder without recordings.
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti::flight_tool;
  enum : int { json = 256, dump, patience };
  static constexpr option known[] = {{"json", no_argument, nullptr, json},
                                     {"dump", no_argument, nullptr, dump},
                                     {"patience", required_argument, nullptr, patience},
                                     {"help", no_argument, nullptr, 'h'},
                                     {nullptr, 0, nullptr, 0}};
  bool as_json = false, dumps = false;
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
