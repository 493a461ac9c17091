#include <cstdio>
#include <exception>

#include "tutti-run/guard.hpp"
#include "tutti-run/job.hpp"
#include "tutti-run/machines/agent.hpp"
#include "tutti-run/options.hpp"
#include "tutti-run/posix.hpp"
#include "tutti-run/status/show.hpp"

int main(int argc, char** argv) {
  using namespace tutti::launch;
  try {
    if (argc == 2 && std::string_view{argv[1]} == "--agent") return run_guarded(run_agent);  // by remote_ranks
    if (argc >= 2 && std::string_view{argv[1]} == "--status") return show_status(argc, argv);
    const auto given = parse_options(argc, argv);
    if (!given.command.empty()) return run_job(given);
    std::fputs(help_text().data(), stdout);
    return 0;
  } catch (const failure& why) {
    std::fprintf(stderr, "tutti-run: %s\n", why.what());
    return why.status();
  } catch (const std::exception& why) {
    std::fprintf(stderr, "tutti-run: %s\n", why.what());
    return 1;
  }
}
