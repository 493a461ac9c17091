// Says which rank of a job is stuck, from the recordings of its ranks:
//   tutti-flight FOLDER
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <tutti/watch/dump.hpp>

#include "tutti-flight/load.hpp"
#include "tutti-flight/skew.hpp"
#include "tutti-flight/trace.hpp"
#include "tutti-flight/verdict.hpp"

namespace {

using namespace tutti::flight_tool;

void dump(const recorded_world& w, const std::string& folder) {
  for (const recorded_rank& r : w.ranks) {
    tutti::watch::flight f = r.flight;
    f.reason = "tutti-flight";
    tutti::watch::dump(f, folder);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Says which rank of a job is stuck, or was when the job failed, in which call and since when, from the\n"
      "recordings that the ranks keep in a folder: tutti-run --flight FOLDER, or TUTTI_FLIGHT_DIR=FOLDER. The job may\n"
      "still run. Exit status: 0 if nothing is stuck, 1 if a rank is or the job has failed, 2 for a mistake on the\n"
      "command line or a folder without recordings."};
  std::string folder;
  bool json = false, dumps = false, merges = false, skews = false;
  double patience = 1;
  app.add_option("folder", folder, "the folder of the recordings")->required();
  app.add_flag("--json", json, "print the verdict as JSON");
  app.add_flag("--dump", dumps, "also write flight_<rank>, for torchfrtrace, and rank_<rank>.json for every rank");
  app.add_option("--patience", patience, "seconds of waiting that are normal")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--skew", skews,
               "also print how long after the first rank each rank came to the collectives, as a table");
  app.add_flag("--merge-trace", merges,
               "instead, write the traces of all ranks in the folder (tutti-run --trace FOLDER) as trace.json");
  try {
    app.parse(argc, argv);
    if (merges) return std::fputs(in_words(merge_traces(folder)).c_str(), stdout) < 0 ? 2 : 0;
    const auto normal = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(patience));
    const recorded_world w = choose_world(load(folder), normal);
    if (dumps) dump(w, folder);
    const verdict v = judge(w, normal);
    if (json) {
      std::fputs(in_json(w, v).c_str(), stdout);
    } else {
      const skew_report& report = v.arrival;
      std::fputs((in_words(w, v) + sentence(report.buckets, "gradient buckets")).c_str(), stdout);
      if (skews) std::fputs(table(report).c_str(), stdout);
    }
    return v.what == finding::nothing && !v.failed ? 0 : 1;
  } catch (const CLI::ParseError& why) {
    return app.exit(why) == 0 ? 0 : 2;
  } catch (const std::exception& why) {
    std::fprintf(stderr, "tutti-flight: %s\n", why.what());
    return 2;
  }
}
