#include "tutti-run/job.hpp"

#include <cstdlib>
#include <thread>

#include <tutti/bootstrap/rendezvous/url.hpp>
#include <tutti/os/host.hpp>

#include "tutti-run/guard.hpp"
#include "tutti-run/machines/remote_ranks.hpp"
#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/ranks/limits.hpp"
#include "tutti-run/ranks/local_ranks.hpp"
#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/rendezvous.hpp"
#include "tutti-run/supervisor.hpp"

namespace tutti::launch {
namespace {

constexpr std::chrono::seconds patience_with_ssh{2};
constexpr int default_port = 29500;  // torchrun's

// MASTER_PORT is for a server of the program's own, and rank 0 listens at the other one. All launchers must choose
// alike.
std::uint16_t port_beside(std::uint16_t port) { return static_cast<std::uint16_t>(port < 65535 ? port + 1 : port - 1); }

// Where the launchers of several machines, each started by hand or by another launcher, let their ranks meet.
rendezvous_point given_rendezvous(const options& given) {
  rendezvous_point rendezvous;
  if (const char* job = std::getenv("TUTTI_JOB")) rendezvous.job = job;
  auto url = rendezvous_url{.kind = rendezvous_url::scheme::tcp, .host = given.machines.master_address};
  if (url.host.empty())
    url = parse_rendezvous(given.part.rendezvous);
  else
    url.port = static_cast<std::uint16_t>(given.machines.master_port != 0 ? given.machines.master_port : default_port);
  rendezvous.url = to_string(url);
  rendezvous.host = url.host;
  rendezvous.port = port_beside(url.port);
  return rendezvous;
}

int run_here(const options& given, const supervision_place& here) {
  if (!given.machines.folder.empty()) enter_working_directory(given.machines.folder);
  const rlimit files = reserve_resources(given.ranks, "ranks");
  const bool alone = given.part.machines == 1;
  const share part{given.part.machine * given.ranks, given.part.machines * given.ranks, given.part.machine};
  rank_names names{part.first, {}};
  if (!alone) names.hosts.assign(static_cast<std::size_t>(given.ranks), os::hostname());
  poller events;
  // The ranks of other machines must have the same secret, so it is the user's.
  local_ranks ranks{given,
                    here.signals,
                    files,
                    part,
                    alone ? make_rendezvous() : given_rendezvous(given),
                    alone ? here.secret.make(random_secret()) : std::string{},
                    here.lifeline.value(),
                    events};
  return supervisor{given, names, part.world, events, ranks, here}.run();
}

int run_on_machines(const options& given, const supervision_place& here) {
  const auto& machines = given.machines.hosts;
  reserve_resources(static_cast<int>(machines.size()), "machines");
  poller events;
  remote_ranks ranks{given, machines, here.signals, here.lifeline.value(), events};
  const int status = supervisor{given, remote_ranks::names(machines), given.ranks, events, ranks, here}.run();
  for (const auto end = clock::now() + patience_with_ssh; has_children() && clock::now() < end; reap_children({}))
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  kill_descendants(clock::now() + patience_with_ssh);
  return status;
}

}  // namespace

int run_job(const options& given) {
  return run_guarded([&](const supervision_place& here) {
    return given.machines.hosts.empty() ? run_here(given, here) : run_on_machines(given, here);
  });
}

}  // namespace tutti::launch
