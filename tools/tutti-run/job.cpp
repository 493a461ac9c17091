#include "tutti-run/job.hpp"

#include <array>
#include <cstdlib>
#include <thread>

#include <tutti/bootstrap/rendezvous/url.hpp>

#include "tutti-run/guard.hpp"
#include "tutti-run/machines/remote_ranks.hpp"
#include "tutti-run/ranks/limits.hpp"
#include "tutti-run/ranks/local_ranks.hpp"
#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/rendezvous.hpp"
#include "tutti-run/supervisor.hpp"

namespace tutti::launch {
namespace {

constexpr std::chrono::seconds patience_with_ssh{2};
constexpr int default_port = 29500;  // torchrun's

std::string own_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Where the launchers of several machines, each started by hand or by another launcher, let their ranks meet.
rendezvous_point given_rendezvous(const options& given) {
  rendezvous_point rendezvous;
  if (const char* job = std::getenv("TUTTI_JOB")) rendezvous.job = job;
  rendezvous.url = given.part.rendezvous;
  rendezvous.host = given.machines.master_address;
  if (rendezvous.host.empty()) {
    const auto url = parse_rendezvous(rendezvous.url);
    rendezvous.host = url.host;
    rendezvous.port = url.port;
    return rendezvous;
  }
  rendezvous.port =
      static_cast<std::uint16_t>(given.machines.master_port != 0 ? given.machines.master_port : default_port);
  const bool v6 = rendezvous.host.find(':') != std::string::npos;
  rendezvous.url = text(v6 ? "tcp://[" : "tcp://", rendezvous.host, v6 ? "]:" : ":", rendezvous.port);
  return rendezvous;
}

int run_here(const options& given, const supervision_place& here) {
  const rlimit files = reserve_resources(given.ranks);
  const bool alone = given.part.machines == 1;
  const share part{given.part.machine * given.ranks, given.part.machines * given.ranks, given.part.machine};
  rank_names names{part.first, {}};
  if (!alone) names.hosts.assign(static_cast<std::size_t>(given.ranks), own_name());
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
  reserve_resources(static_cast<int>(machines.size()));
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
