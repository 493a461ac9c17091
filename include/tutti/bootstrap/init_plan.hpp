#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tutti/bootstrap/init_environment.hpp>
#include <tutti/bootstrap/launch/environment.hpp>
#include <tutti/bootstrap/launch/inner_environment.hpp>
#include <tutti/bootstrap/launch/slurm.hpp>
#include <tutti/bootstrap/launch/step_secret.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/bootstrap/rendezvous/url.hpp>
#include <tutti/core/error.hpp>
#include <tutti/store/exposure.hpp>
#include <tutti/transport/tcp/options.hpp>

namespace tutti::detail {

/// Decisions of init(), made from its options and the environment.
struct init_plan {
  int rank = 0;
  int world_size = 1;
  int local_size = -1;       ///< ranks on this machine; -1: unknown
  std::string job;           ///< may be empty
  rendezvous_url where;      ///< env:// for a world of one
  std::string source;        ///< origin of `where`, for messages
  bool exact_count = false;  ///< the launcher has started exactly world_size processes, so that no extra rank can come
  transport_choice transport = transport_choice::automatic;
  std::string interface;
  int connections = 1;
  exposure network = exposure::guarded;
  launcher by = launcher::by_hand;
  std::string step_secret;  ///< path of the file of a Slurm step's secret, used if there is no other; empty: none
  encryption_choice encryption = encryption_choice::none;
};

/// Returns the transport that the options or TUTTI_TRANSPORT choose. Throws usage_error.
transport_choice chosen_transport(const init_options& options, const variable_lookup auto& get) {
  const auto text = get("TUTTI_TRANSPORT");
  if (options.transport != transport_choice::automatic || !text) return options.transport;
  if (*text == "shm") return transport_choice::shm;
  if (*text == "tcp") return transport_choice::tcp;
  if (*text == "automatic") return transport_choice::automatic;
  throw usage_error("environment: " + show("TUTTI_TRANSPORT", *text) + " is not shm, tcp or automatic");
}

/// Returns whether the options or TUTTI_NETWORK allow to listen without a secret. Throws usage_error.
exposure chosen_network(const init_options& options, const variable_lookup auto& get) {
  const auto text = get("TUTTI_NETWORK");
  if (options.network == exposure::insecure || !text || *text == "guarded") return options.network;
  if (*text == "insecure") return exposure::insecure;
  throw usage_error("environment: " + show("TUTTI_NETWORK", *text) + " is not guarded or insecure");
}

/// Returns the number of connections that the options or TUTTI_CONNECTIONS choose. Throws usage_error.
int chosen_connections(const init_options& options, const variable_lookup auto& get) {
  constexpr int most = tcp_options::most_connections;
  const std::string range = " is not a number from 1 to " + std::to_string(most);
  if (options.connections < 0 || options.connections > most)
    throw usage_error("init_options::connections, " + std::to_string(options.connections) + "," + range);
  const auto text = get("TUTTI_CONNECTIONS");
  if (options.connections != 0 || !text) return (std::max)(options.connections, 1);
  const auto n = parse_decimal<int>(*text);
  if (!n || *n < 1 || *n > most) throw usage_error("environment: " + show("TUTTI_CONNECTIONS", *text) + range);
  return *n;
}

/// Returns the encryption, none or tls, that the options or TUTTI_ENCRYPTION choose. Throws usage_error.
encryption_choice chosen_encryption(const init_options& options, const variable_lookup auto& get) {
  if (options.encryption != encryption_choice::automatic) return options.encryption;
  const auto text = get("TUTTI_ENCRYPTION");
  if (!text || *text == "none") return encryption_choice::none;
  if (*text == "tls") return encryption_choice::tls;
  throw usage_error("environment: " + show("TUTTI_ENCRYPTION", *text) + " is not none or tls");
}

/// Returns the rank that a process was given by hand if it is beyond its world, else nullopt. Such a process joins so
/// that all ranks fail with a message. Replaces the rank in `get`, so that the rest of the environment can be read.
template <variable_lookup Get>
std::optional<int> extra_rank(changed_environment<Get>& get) {
  for (const launch_variables& names : {tutti_variables, torchrun_variables}) {
    const auto rank = get(names.rank), size = get(names.world_size);
    if (!rank || !size) continue;
    const auto r = parse_decimal<int>(*rank), n = parse_decimal<int>(*size);
    if (!r || !n || *n < 2 || *r < *n) return std::nullopt;
    get.set(names.rank, std::to_string(*n - 1));
    for (const char* hidden : {names.local_rank, names.local_size}) get.set(hidden, std::nullopt);
    return r;
  }
  return std::nullopt;
}

/// Returns true if the launcher that counted the processes also named their rendezvous.
bool launcher_counts(const variable_lookup auto& get, const launch& found, std::uint32_t user) {
  if (found.rendezvous == at_socket("tutti-" + found.job)) return get("TUTTI_REPORT_FD").has_value();  // tutti-run
  return !get("TUTTI_JOB") && !get("TUTTI_RENDEZVOUS") && found.rendezvous == local_rendezvous(user, found.job);
}

/// Returns true if the ranks are the tasks of a Slurm step on several machines, also where rank and size are given by
/// hand from Slurm's.
bool spread_by_slurm(const variable_lookup auto& get, const init_plan& plan) {
  if (plan.by == launcher::slurm) return plan.local_size != plan.world_size;
  const auto number = [&](const char* name) { return parse_decimal<int>(get(name).value_or("")); };
  return plan.by == launcher::by_hand && slurm_step(get) && number("SLURM_STEP_NUM_NODES").value_or(1) > 1 &&
         number("SLURM_PROCID") == plan.rank && number("SLURM_STEP_NUM_TASKS") == plan.world_size;
}

/// Reads an environment in which options have replaced variables, or extra_rank() has replaced the rank; errors
/// mention that.
std::optional<launch> read_changed(const variable_lookup auto& get, std::uint32_t user, std::optional<int> extra,
                                   const rendezvous_url& given) {
  try {
    return read_launch(get, user, given);
  } catch (const usage_error& e) {
    // The text of e would name the rank that was put in place.
    if (extra)
      throw usage_error("rank " + std::to_string(*extra) +
                        " is beyond its world: ranks count from 0; correct the rank or the world size");
    throw usage_error(std::string("init_options (rank, world_size and rendezvous count as TUTTI_RANK, TUTTI_WORLD_SIZE "
                                  "and TUTTI_RENDEZVOUS): ") +
                      e.what());
  }
}

/// Decides what init() does; options precede the environment. Throws usage_error. `hydra` names the jobs of MPICH; a
/// parameter for tests.
init_plan plan_init(const init_options& options, const variable_lookup auto& process, std::uint32_t user,
                    std::optional<std::string> (*hydra)() = hydra_job) {
  const inner_environment given{process};
  init_plan plan;
  plan.transport = chosen_transport(options, given);
  plan.connections = chosen_connections(options, given);
  plan.network = chosen_network(options, given);
  plan.encryption = chosen_encryption(options, given);
  plan.interface = options.interface.empty() ? std::string(given("TUTTI_INTERFACE").value_or("")) : options.interface;

  if (options.rank.has_value() != options.world_size.has_value())
    throw usage_error("init_options: rank and world_size are given together or not at all");
  auto rank = options.rank, size = options.world_size;
  rendezvous_url url;
  if (!options.rendezvous.empty()) {
    url = parse_rendezvous(options.rendezvous);
    if ((rank && url.rank && *rank != *url.rank) || (size && url.world_size && *size != *url.world_size))
      throw usage_error("init_options::rendezvous " + options.rendezvous +
                        " contradicts init_options::rank and "
                        "world_size; keep one of the two");
    if (!rank && url.rank && url.world_size) {
      rank = url.rank;
      size = url.world_size;
    }
    if (rank) {
      url.rank.reset();
      url.world_size.reset();
    }
  }
  const bool given_place = url.kind != rendezvous_url::scheme::env;
  if (rank && (*rank < 0 || *size < 1))
    throw usage_error("init_options: rank " + std::to_string(*rank) + " in a world of " + std::to_string(*size) +
                      ": ranks count from 0, and a world has at least 1");

  changed_environment get{given};
  if (!options.job.empty()) get.set("TUTTI_JOB", options.job);
  std::optional<int> extra;
  if (rank) {
    if (*rank >= *size && *size > 1) extra = rank;
    get.set("TUTTI_RANK", std::to_string(extra ? *size - 1 : *rank));
    get.set("TUTTI_WORLD_SIZE", std::to_string(*size));
  } else {
    extra = extra_rank(get);
  }
  add_hydra_job(get, hydra);

  const bool changed = given_place || rank || extra;
  if (!given_place) url = explicit_rendezvous(get);
  const auto found = changed ? read_changed(get, user, extra, url) : read_launch(get, user, url);
  if (!found) return plan;
  if (extra) refuse_size_in_nodes(given, *extra, found->world_size);
  plan.rank = extra.value_or(found->rank);
  plan.world_size = found->world_size;
  plan.local_size = found->local_size;
  plan.job = found->job;
  plan.by = found->by;
  if (spread_by_slurm(given, plan)) plan.step_secret = step_secret_path(given);
  if (found->world_size == 1) return plan;
  plan.where = found->rendezvous;
  plan.source = given_place ? "init_options::rendezvous" : found->rendezvous_source;
  plan.exact_count = !rank && !given_place && !extra && launcher_counts(get, *found, user);
  if (!given_place && !get("TUTTI_RENDEZVOUS"))
    if (const auto socket = torchrun_socket(get, user)) {
      plan.where = *socket;
      plan.source = "all ranks are on this machine, of one torchrun";
      plan.exact_count = !rank;
    }
  return plan;
}

}  // namespace tutti::detail
