#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tutti/bootstrap/launch/hostlist.hpp>
#include <tutti/bootstrap/launch/selection.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/rendezvous/url.hpp>
#include <tutti/core/text.hpp>

namespace tutti::detail {

/// Rendezvous, and the variables that gave it, for messages.
struct chosen_rendezvous {
  rendezvous_url url;
  std::string source;
};

inline bool loopback(std::string_view host) noexcept {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

/// Returns the launcher's name of the job: the same on all ranks, different for jobs that run at the same time. Empty
/// if there is none.
std::string job_name(const variable_lookup auto& get, launcher by) {
  if (const auto job = get("TUTTI_JOB")) {
    if (job->empty()) throw usage_error("environment: TUTTI_JOB is empty; give the job a name, or unset it");
    return std::string(*job);
  }
  const auto text = [&](const char* name) { return std::string(get(name).value_or("")); };
  switch (by) {
    case launcher::torchrun: {
      const std::string id = text("TORCHELASTIC_RUN_ID"), restarts = text("TORCHELASTIC_RESTART_COUNT");
      if (id.empty() || id == "none") return "";  // torchrun's id of every job without --rdzv-id
      return restarts.empty() || restarts == "0" ? id : id + "." + restarts;
    }
    case launcher::open_mpi:
      return text(get("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
    case launcher::mpich:
      return text("PMI_JOBID");
    case launcher::horovod: {
      const std::string host = text("HOROVOD_GLOO_RENDEZVOUS_ADDR"), port = text("HOROVOD_GLOO_RENDEZVOUS_PORT");
      return host.empty() || port.empty() ? "" : "horovod-" + host + "-" + port;
    }
    case launcher::slurm: {
      const std::string job(slurm_variable(get, "SLURM_JOB_ID", "SLURM_JOBID").value_or(""));
      const auto step = slurm_step(get);
      return job.empty() || !step ? job : job + "." + std::to_string(*step);
    }
    case launcher::tutti_run:
    case launcher::by_hand:
      break;
  }
  return "";
}

/// Returns the rendezvous at an abstract socket of this name.
inline rendezvous_url at_socket(std::string name) {
  rendezvous_url url;
  url.kind = rendezvous_url::scheme::unix_abstract;
  url.path = std::move(name);
  return url;
}

/// Returns the rendezvous at the abstract socket `tutti-<uid>-<job>`; see name_part() of the job.
inline rendezvous_url local_rendezvous(std::uint32_t user, std::string_view job) {
  return at_socket("tutti-" + std::to_string(user) + "-" + name_part(job));
}

/// Returns the TCP rendezvous at `host`, which came from `variable`.
inline rendezvous_url tcp_rendezvous(const char* variable, std::string_view host, int port) {
  const bool bare_v6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const std::string shown = bare_v6 ? "[" + std::string(host) + "]" : std::string(host);
  try {
    return parse_rendezvous("tcp://" + shown + ":" + std::to_string(port));
  } catch (const usage_error& e) {
    throw usage_error("environment: " + show(variable, host) + ": " + e.what());
  }
}

int derived_slurm_port(const variable_lookup auto& get) {
  const auto text = slurm_variable(get, "SLURM_JOB_ID", "SLURM_JOBID");
  const auto job = text ? parse_decimal<std::uint64_t>(*text) : std::nullopt;
  if (!job)
    throw usage_error("environment: no port can be derived from " + show("SLURM_JOB_ID", text.value_or("")) +
                      "; set MASTER_PORT to a free port on the machine of rank 0");
  return slurm_port(*job, slurm_step(get).value_or(0));
}

/// Returns the rendezvous at MASTER_ADDR and MASTER_PORT. If torchrun's agent keeps a server on MASTER_PORT while the
/// workers run (TORCHELASTIC_USE_AGENT_STORE), the next port is used.
chosen_rendezvous master_rendezvous(const variable_lookup auto& get, std::string_view host,
                                    const launch_selection& chosen) {
  const launch_claim& by = chosen.launcher;
  const bool places = by && by.names.by != launcher::horovod;  // its users and tests list one machine twice
  if (places && loopback(host) && by.local_size > 0 && by.local_size < by.world_size)
    throw usage_error("environment: " + show("MASTER_ADDR", host) + " means each machine itself, but " +
                      by.names.command + " started " + std::to_string(by.world_size) + " ranks with " +
                      std::to_string(by.local_size) +
                      " on this machine; set MASTER_ADDR to the name of rank 0's machine");
  const std::string_view agent = get("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  const bool taken = agent == "True" || agent == "true" || agent == "1";
  if (const auto port = read_number(get, "MASTER_PORT", 1, taken ? 65534 : 65535))
    return {tcp_rendezvous("MASTER_ADDR", host, *port + (taken ? 1 : 0)),
            taken ? "MASTER_ADDR and MASTER_PORT + 1 (torchrun's own store listens on MASTER_PORT)"
                  : "MASTER_ADDR and MASTER_PORT"};
  if (by && by.names.by == launcher::slurm)
    return {tcp_rendezvous("MASTER_ADDR", host, derived_slurm_port(get)), "MASTER_ADDR and a port from SLURM_JOB_ID"};
  throw usage_error("environment: " + show("MASTER_ADDR", host) +
                    " without MASTER_PORT; set MASTER_PORT to a free port there");
}

/// Throws usage_error that says what to set if no variable gives a rendezvous.
[[noreturn]] inline void refuse_no_rendezvous(const launch_claim& claim, std::string_view job) {
  std::string message = "environment: " + show(claim) + ", but nothing says where the ranks meet; ";
  const launcher by = claim.names.by;
  const bool here = claim.local_size == claim.world_size && job.empty();
  if (here)
    message += "all ranks are on this machine: set TUTTI_JOB to a name that no other job has";
  else
    message += "set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a free port there";
  if (by == launcher::open_mpi)
    message += here ? " (mpirun -x TUTTI_JOB=name)" : " (mpirun -x MASTER_ADDR=host -x MASTER_PORT=29500)";
  if (by == launcher::mpich)
    message += here ? " (mpiexec -genv TUTTI_JOB name)" : " (mpiexec -genv MASTER_ADDR host -genv MASTER_PORT 29500)";
  throw usage_error(message + ", or set TUTTI_RENDEZVOUS=tcp://host:port");
}

/// Returns the rendezvous: `given`, which TUTTI_RENDEZVOUS or an option has named, else MASTER_ADDR, else a socket of
/// this machine if all ranks are on it, else an address that the launcher gives. Throws usage_error instead of
/// guessing. `env` for a world of one.
chosen_rendezvous choose_rendezvous(const variable_lookup auto& get, rendezvous_url given,
                                    const launch_selection& chosen, std::string_view job, std::uint32_t user) {
  if (given.kind != rendezvous_url::scheme::env) {
    given.rank.reset();
    given.world_size.reset();
    return {std::move(given), "TUTTI_RENDEZVOUS"};
  }
  const launch_claim& claim = chosen.claim;
  if (claim.world_size == 1) return {};
  if (const auto host = get("MASTER_ADDR")) return master_rendezvous(get, *host, chosen);
  const launcher by = (chosen.launcher ? chosen.launcher : claim).names.by;
  const auto port = read_number(get, "MASTER_PORT", 1, 65535);
  if (claim.local_size == claim.world_size && !job.empty() && !(by == launcher::slurm && port))
    return {local_rendezvous(user, job), "all ranks are on this machine, of user " + std::to_string(user)};
  if (by == launcher::slurm) {
    const char* name = get("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    if (const auto list = get(name)) {
      const std::string first = expand_hostlist(*list).front();
      return {tcp_rendezvous(name, first, port ? *port : derived_slurm_port(get)),
              std::string("the first node of ") + name + (port ? " and MASTER_PORT" : " and a port from SLURM_JOB_ID")};
    }
  }
  if (by == launcher::horovod) {
    const auto host = get("HOROVOD_GLOO_RENDEZVOUS_ADDR");
    const auto taken = read_number(get, "HOROVOD_GLOO_RENDEZVOUS_PORT", 1, 65534);
    if (host && taken)
      return {tcp_rendezvous("HOROVOD_GLOO_RENDEZVOUS_ADDR", *host, *taken + 1),
              "HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT + 1 (horovodrun's own server listens on that port)"};
  }
  refuse_no_rendezvous(claim, job);
}

}  // namespace tutti::detail
