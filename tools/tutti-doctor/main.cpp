// Looks at the machines, limits and links of a job before the job runs:
//   tutti-run -n 4 -- tutti-doctor
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <tutti/bootstrap/init.hpp>
#include <tutti/core/error.hpp>

#include "tutti-doctor/facts.hpp"
#include "tutti-doctor/findings.hpp"
#include "tutti-doctor/links.hpp"
#include "tutti-doctor/table.hpp"

#if defined(TUTTI_WITH_OPENSSL)
#include <tutti/bootstrap/openssl.hpp>
#endif

namespace {

using namespace tutti::doctor;

constexpr int broken = 1;
constexpr int misused = 2;

/// Says what this rank knows after an error that ended the world, or that came before it.
int explain(const rank_facts& mine, const char* why, const char* remedy, bool json) {
  report alone;
  alone.ranks.push_back(mine);
  auto found = find_faults(alone);
  const std::string_view message = why;
  const auto known =
      std::ranges::find_if(found, [&](const finding& f) { return message.find(f.what) != message.npos; });
  finding cause{severity::error, {mine.rank}, why, remedy};
  if (known != found.end()) {
    cause.remedy = known->remedy;
    found.erase(known);
  }
  found.insert(found.begin(), cause);
  const std::string text = json ? to_json_text(alone, found)
                                : "tutti-doctor: " + describe({mine.rank}, alone) + " of " +
                                      std::to_string(mine.world_size) + " could not examine the job\n" +
                                      to_text(found, alone);
  std::fputs(text.c_str(), json ? stdout : stderr);
  return broken;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Looks at the machines, limits and links of a job. Start it as the job itself:\n"
      "  tutti-run -n 4 -- tutti-doctor\n"
      "  srun -N 2 --ntasks-per-node 8 tutti-doctor\n"
      "Exit status of rank 0: 0 if nothing was found that breaks a job (warnings do not), 1 otherwise; 2 for a wrong "
      "option."};
  bool json = false;
  double patience = 60;
  app.add_flag("--json", json, "print one JSON document instead of tables");
  app.add_option("--join-timeout", patience, "seconds within which all ranks must have come")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& why) {
    return app.exit(why) == 0 ? 0 : misused;
  }

  rank_facts mine;
  const char* remedy = "docs/rendezvous.md lists the errors of init() and their causes";
  try {
    tutti::init_options how;
    mine = collect(how.secret);
    how.join_timeout = std::chrono::duration_cast<tutti::duration>(std::chrono::duration<double>(patience));
    how.timeout = std::chrono::seconds{60};
    auto world = tutti::init(how);
    remedy = "see what the other ranks say, too";
    look_at_peers(world, mine);
    const report all = examine(world, mine);
    int status = 0;
    if (world.rank() == 0) {
      const auto found = find_faults(all);
      std::fputs((json ? to_json_text(all, found) : to_text(all, found)).c_str(), stdout);
      status = has_errors(found) ? broken : 0;
    }
    world.close();
    return std::fflush(stdout) == 0 ? status : broken;
  } catch (const std::exception& e) {
    return explain(mine, e.what(), remedy, json);
  }
}
