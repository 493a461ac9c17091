#include "links.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <tutti/core/deadline.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/throw_errno.hpp>
#include <utility>

namespace tutti::doctor {
namespace {

using world_type = communicator<>;
using number = std::int64_t;

/// A message between two ranks that measure, or from rank 0 to one that is to.
struct message {
  enum what : number { end, lead, follow, ping, take, give, done };
  number kind = end;
  number value = 0;
};

void tell(world_type& world, int peer, message m) {
  const std::array<number, 2> words{m.kind, m.value};
  world.send(words, peer).wait();
}
message hear(world_type& world, int peer) {
  std::array<number, 2> words{};
  world.recv(words, peer).wait();
  return {words[0], words[1]};
}

double seconds_since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Does as the leading rank asks, until it is done.
void follow(world_type& world, int leader) {
  std::vector<char> data;
  for (;;) {
    const message asked = hear(world, leader);
    data.resize(static_cast<std::size_t>(asked.value));
    switch (asked.kind) {
      case message::ping: {
        const std::array<double, 1> now{wall_clock()};
        world.send(now, leader).wait();
        break;
      }
      case message::take:
        world.recv(data, leader).wait();
        tell(world, leader, {message::done, 0});
        break;
      case message::give:
        world.send(data, leader).wait();
        break;
      default:
        return;
    }
  }
}

struct measured {
  double latency = 0;  ///< seconds, one way
  double there = 0, back = 0;
  double clock = 0, uncertainty = 0;
};

/// Measures the link to another rank, which follows.
measured lead(world_type& world, int peer) {
  constexpr int pings = 40;
  constexpr std::array<std::size_t, 3> sizes{std::size_t{1} << 18U, std::size_t{1} << 22U, std::size_t{1} << 24U};
  constexpr double long_enough = 0.02;  // a larger message would tell no more
  measured m;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < pings; ++i) {
    const double sent_at = wall_clock();
    const auto began = clock::now();
    tell(world, peer, {message::ping, 0});
    std::array<double, 1> theirs{};
    world.recv(theirs, peer).wait();
    const double took = seconds_since(began);
    if (took >= best) continue;
    best = took;
    m.clock = theirs[0] - (sent_at + took / 2);
    m.uncertainty = took / 2;
  }
  m.latency = best / 2;
  std::vector<char> data;
  for (const std::size_t bytes : sizes) {
    data.resize(bytes);
    const auto measure = [&](message::what kind) {
      const auto began = clock::now();
      tell(world, peer, {kind, static_cast<number>(bytes)});
      if (kind == message::take) {
        world.send(data, peer).wait();
        static_cast<void>(hear(world, peer));
      } else {
        world.recv(data, peer).wait();
      }
      // The other rank may have been awake all the time, as it was not for any ping.
      const double took = seconds_since(began);
      return std::max(took - 2 * m.latency, took / 2);
    };
    measure(message::take);  // the first one takes memory
    const double there = std::min(measure(message::take), measure(message::take));
    const double back = std::min(measure(message::give), measure(message::give));
    m.there = std::max(m.there, static_cast<double>(bytes) / there);
    m.back = std::max(m.back, static_cast<double>(bytes) / back);
    if (std::max(there, back) > long_enough) break;
  }
  tell(world, peer, {message::end, 0});
  return m;
}

/// Waits for the orders of rank 0.
void serve(world_type& world) {
  for (;;) {
    const message order = hear(world, 0);
    const int peer = static_cast<int>(order.value);
    if (order.kind == message::end) return;
    if (order.kind == message::follow) follow(world, peer);
    if (order.kind != message::lead) continue;
    const measured m = lead(world, peer);
    const std::array<double, 3> result{m.latency, m.there, m.back};
    world.send(result, 0).wait();
  }
}

bool share_memory(const world_type& world, int a, int b) {
  const char* transport = std::getenv("TUTTI_TRANSPORT");
  const auto& all = world.peers();
  return all[static_cast<std::size_t>(a)].memory_domain == all[static_cast<std::size_t>(b)].memory_domain &&
         (transport == nullptr || std::string_view{transport} != "tcp");
}

std::vector<std::pair<int, int>> pairs_of(const world_type& world) {
  constexpr std::size_t most = 512;
  const auto n = static_cast<std::size_t>(world.size());
  const auto is_first = [&](std::size_t r) { return world.peers()[r].local_rank == 0; };
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b) {
      const bool one_machine = world.peers()[a].node_rank == world.peers()[b].node_rank;
      if (n * (n - 1) / 2 <= most || (is_first(a) && (one_machine || is_first(b))))
        pairs.emplace_back(static_cast<int>(a), static_cast<int>(b));
    }
  return pairs;
}

report gather(world_type& world, const rank_facts& mine) {
  report all;
  if (world.rank() != 0) {
    const std::string text = nlohmann::json(mine).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const std::array<number, 1> size{static_cast<number>(text.size())};
    world.send(size, 0).wait();
    world.send(text, 0).wait();
    return all;
  }
  all.ranks.push_back(mine);
  for (int r = 1; r < world.size(); ++r) {
    std::array<number, 1> size{};
    world.recv(size, r).wait();
    std::string text(static_cast<std::size_t>(size[0]), ' ');
    world.recv(text, r).wait();
    all.ranks.push_back(nlohmann::json::parse(text).get<rank_facts>());
  }
  return all;
}

void measure(world_type& world, report& all) {
  std::map<int, bool> compared;
  for (const auto& [a, b] : pairs_of(world)) {
    tell(world, b, {message::follow, a});
    measured m;
    if (a == 0) {
      m = lead(world, b);
      const int node = world.peers()[static_cast<std::size_t>(b)].node_rank;
      if (node != world.node_rank() && !std::exchange(compared[node], true))
        all.clocks.push_back({b, m.clock, m.uncertainty});
    } else {
      tell(world, a, {message::lead, b});
      std::array<double, 3> result{};
      world.recv(result, a).wait();
      m = {result[0], result[1], result[2], 0, 0};
    }
    all.pairs.push_back({a, b, share_memory(world, a, b), m.latency * 1e6, m.there / 1e9, m.back / 1e9});
  }
}

}  // namespace

void look_at_peers(const communicator<>& world, rank_facts& mine) {
  const rank_info& self = world.peers()[static_cast<std::size_t>(world.rank())];
  mine.rank = world.rank();
  mine.world_size = world.size();
  mine.node = self.node_rank;
  mine.address = self.endpoint;
  if (!self.endpoint.empty()) {
    const std::string host = os::split_host_port(self.endpoint).first;
    for (const network_interface& i : mine.interfaces)
      if (std::ranges::find(i.addresses, host) != i.addresses.end()) mine.chosen_interface = i.name;
  }

  struct attempt {
    const rank_info* peer;
    os::socket_result made;
  };
  std::vector<attempt> open;
  for (const rank_info& p : world.peers())
    if (p.rank != mine.rank && !p.endpoint.empty() && !share_memory(world, mine.rank, p.rank)) {
      const auto [host, port] = os::split_host_port(p.endpoint);
      open.push_back({&p, os::start_connect(os::resolve(host, port).front())});
    }
  const auto until = after(std::chrono::seconds{3});
  for (attempt& one : open) {
    int error = one.made.error;
    if (error == EINPROGRESS) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining(until)).count();
      pollfd p{one.made.socket.native(), POLLOUT, 0};
      ::poll(&p, 1, static_cast<int>(left));
      error = os::connect_result(one.made.socket.native());
    }
    if (error != 0)
      mine.unreachable.push_back(
          {one.peer->rank, one.peer->endpoint, error == EINPROGRESS ? "no answer within 3 s" : os::errno_text(error)});
  }
}

report examine(communicator<>& world, const rank_facts& mine) {
  report all = gather(world, mine);
  if (world.rank() != 0) {
    serve(world);
    return all;
  }
  const bool reached = std::ranges::all_of(all.ranks, [](const rank_facts& f) { return f.unreachable.empty(); });
  if (reached) {
    measure(world, all);
  } else {
    all.not_measured = "a rank cannot connect to another";
  }
  for (int r = 1; r < world.size(); ++r) tell(world, r, {message::end, 0});
  return all;
}

}  // namespace tutti::doctor
