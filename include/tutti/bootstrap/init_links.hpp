#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/shm/export.hpp>
#include <tutti/transport/shm/import.hpp>
#include <tutti/transport/tcp/listener.hpp>
#include <tutti/transport/tcp/options.hpp>

namespace tutti::detail {

/// What a transport of processes is made of: the world, and this rank's ways to reach it.
template <class Link>
struct links {
  roster all;
  int rank = 0;
  std::optional<shm_attachment> memory;  ///< shared with the ranks of this machine
  std::optional<tcp_listener> listener;  ///< at which the others connect
  tcp_job job;
  tcp_options options;

  [[nodiscard]] std::unique_ptr<Link> make() && {
    return std::make_unique<Link>(std::move(all), rank, std::move(memory), std::move(listener), std::move(job),
                                  options);
  }
};

/// Which links this rank needs.
struct link_needs {
  bool memory = false;
  bool network = false;
  bool bells = false;  ///< ranks sleep on descriptors, because they wait for sockets, too

  /// Throws error{rendezvous} when the ranks are not where the chosen transport can reach them.
  link_needs(const roster& all, const rank_info& self, transport_choice chosen) {
    const rank_info* elsewhere = nullptr;
    for (const rank_info& p : all)
      if (elsewhere == nullptr && p.memory_domain != self.memory_domain) elsewhere = &p;
    if (chosen == transport_choice::shm && elsewhere != nullptr)
      throw error{{errc::rendezvous, 0, elsewhere->rank, 0},
                  describe(self) + " and " + describe(*elsewhere) +
                      " cannot share memory: they are on two machines, in two containers, or of two users; "
                      "choose the transport tcp or automatic",
                  {self.rank}};
    network = all.size() > 1 && (chosen == transport_choice::tcp || elsewhere != nullptr);
    memory = chosen != transport_choice::tcp && (self.local_size > 1 || !network);
    bells = memory && network;
  }
};

/// The address of this machine from which packets to `where` leave; nothing is sent.
inline std::optional<os::endpoint> route_to(const os::endpoint& where) {
  const os::fd probe{::socket(where.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!probe || ::connect(probe.native(), where.native(), where.native_bytes()) != 0) return std::nullopt;
  return os::local_endpoint(probe.native()).with_port(0);
}

/// The first rank that is not on the host of `self`; null when all are.
inline const rank_info* on_another_host(const roster& all, const rank_info& self) noexcept {
  for (const rank_info& p : all)
    if (p.host != self.host) return &p;
  return nullptr;
}

/// "10.0.0.7" of "10.0.0.7:0"
inline std::string host_of(const os::endpoint& where) { return os::split_host_port(where.to_string()).first; }

/// The address at which a rank listens for its peers: what the user names; else the loopback if all ranks are there;
/// else the one that leads to the rendezvous, or, where that is on this machine and goes by a loopback address here,
/// the one by which others have come: `reached()`. Throws error{rendezvous} when nothing tells.
template <class Reached>
std::string address_for_peers(const init_plan& plan, const roster& all, const rank_info& self, Reached reached) {
  using enum rendezvous_url::scheme;
  constexpr const char* loopback_address = "127.0.0.1";
  if (!plan.interface.empty()) return plan.interface;
  if (plan.where.kind != tcp && plan.where.kind != file) return loopback_address;
  const bool alone = on_another_host(all, self) == nullptr;
  if (plan.where.kind == tcp) {
    for (const os::endpoint& where : os::resolve(plan.where.host, plan.where.port)) {
      const auto mine = where.is_loopback() ? where.with_port(0) : route_to(where);
      if (mine && (alone || !mine->is_loopback())) return host_of(*mine);
    }
    if (const std::string known = alone ? "" : reached(); !known.empty()) return known;
  } else if (alone) {
    return loopback_address;
  }
  throw error{{errc::rendezvous},
              describe(self) +
                  " cannot tell at which of its addresses other machines reach it; name "
                  "the network interface with TUTTI_INTERFACE or init_options::interface",
              {self.rank}};
}

/// Link-local addresses of others, made to mean something here: their interface is the one at which this rank listens,
/// if that has such an address, too.
inline void see_from_here(roster& all, const rank_info& self) {
  const auto link_of = [](const rank_info& p) {
    const std::string host = p.endpoint.empty() ? "" : os::split_host_port(p.endpoint).first;
    const auto percent = host.starts_with("fe80:") ? host.find('%') : std::string::npos;
    return percent == std::string::npos ? std::string{} : host.substr(percent);
  };
  const std::string mine = link_of(self);
  if (mine.empty()) return;
  for (rank_info& p : all)
    if (const std::string theirs = link_of(p); !theirs.empty())
      p.endpoint.replace(p.endpoint.find('%'), theirs.size(), mine);
}

/// Refuses a world in which a machine can be reached by itself only.
inline void check_places(const roster& all) {
  for (const rank_info& p : all) {
    const bool loops =
        !p.endpoint.empty() && os::resolve(os::split_host_port(p.endpoint).first, 0).front().is_loopback();
    const rank_info* other = on_another_host(all, p);
    if (loops && other != nullptr)
      throw error{{errc::rendezvous, 0, p.rank, 0},
                  describe(p) + " listens on " + p.endpoint + ", where " + describe(*other) +
                      " cannot reach it; name the network interface with TUTTI_INTERFACE or init_options::interface"};
  }
}

}  // namespace tutti::detail
