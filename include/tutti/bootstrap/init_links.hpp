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

/// Parts of a transport between processes: the world, and the ways in which this rank is connected to it.
template <class Link>
struct links {
  roster all;
  int rank = 0;
  std::optional<shm_attachment> memory;  ///< shared with the ranks of this machine
  std::optional<tcp_listener> listener;  ///< the others connect to it
  tcp_job job;
  tcp_options options;

  [[nodiscard]] std::unique_ptr<Link> make() && {
    return std::make_unique<Link>(std::move(all), rank, std::move(memory), std::move(listener), std::move(job),
                                  options);
  }
};

/// Kinds of links that this rank needs.
struct link_needs {
  bool memory = false;
  bool network = false;
  bool bells = false;  ///< ranks sleep on descriptors, since they also wait for sockets

  /// Throws error{rendezvous} if the chosen transport cannot reach all ranks.
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

/// Returns the address of this machine from which packets to `where` are sent. Sends nothing.
inline std::optional<os::endpoint> route_to(const os::endpoint& where) {
  const os::fd probe{::socket(where.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!probe || ::connect(probe.native(), where.native(), where.native_bytes()) != 0) return std::nullopt;
  return os::local_endpoint(probe.native()).with_port(0);
}

/// Returns the address of this machine from which packets to the host of `other` leave; nullopt if the name of that
/// host is not known here, or is that of a loopback address.
inline std::optional<os::endpoint> route_to_host(const rank_info& other) {
  constexpr std::uint16_t any_port = 9;
  try {
    for (const os::endpoint& where : os::resolve(other.host, any_port))
      if (auto mine = where.is_loopback() ? std::nullopt : route_to(where); mine && !mine->is_loopback()) return mine;
  } catch (const error&) {  // no such host
  }
  return std::nullopt;
}

/// Returns the first rank that is not on the host of `self`; null if all are.
inline const rank_info* on_another_host(const roster& all, const rank_info& self) noexcept {
  for (const rank_info& p : all)
    if (p.host != self.host) return &p;
  return nullptr;
}

/// Returns "10.0.0.7" for "10.0.0.7:0".
inline std::string host_of(const os::endpoint& where) { return os::split_host_port(where.to_string()).first; }

/// Returns the address at which this rank listens for its peers. It is the first of: the address that the user names;
/// loopback, if the rendezvous is inside one machine or all ranks of a file rendezvous are on one host; the address
/// from which packets to a TCP rendezvous leave, which may be loopback only if all ranks are on one host; `reached()`,
/// the address at which other nodes have reached the rendezvous on this one; that from which packets to another rank's
/// host leave, for a file rendezvous. Throws error{rendezvous} if none is known.
template <class Reached>
std::string address_for_peers(const init_plan& plan, const roster& all, const rank_info& self, Reached reached) {
  using enum rendezvous_url::scheme;
  constexpr const char* loopback_address = "127.0.0.1";
  if (!plan.interface.empty()) return plan.interface;
  if (plan.where.kind != tcp && plan.where.kind != file) return loopback_address;
  const rank_info* const other = on_another_host(all, self);
  const bool alone = other == nullptr;
  if (plan.where.kind == tcp) {
    for (const os::endpoint& where : os::resolve(plan.where.host, plan.where.port)) {
      const auto mine = where.is_loopback() ? where.with_port(0) : route_to(where);
      if (mine && (alone || !mine->is_loopback())) return host_of(*mine);
    }
    if (const std::string known = alone ? "" : reached(); !known.empty()) return known;
  } else if (alone) {
    return loopback_address;
  } else if (const auto mine = route_to_host(*other)) {
    return host_of(*mine);
  }
  throw error{{errc::rendezvous},
              describe(self) +
                  " cannot tell at which of its addresses other machines reach it; name "
                  "the network interface with TUTTI_INTERFACE or init_options::interface",
              {self.rank}};
}

/// Replaces the interface in other ranks' link-local addresses by the one at which this rank listens, if that has such
/// an address: the name of an interface is valid on its own machine only.
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

/// Throws error{rendezvous} if a rank listens on a loopback address although ranks are on other hosts.
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
