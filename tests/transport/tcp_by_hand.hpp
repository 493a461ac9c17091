#pragma once
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/transport/messaging/frame.hpp>
#include <tutti/transport/tcp/segment_header.hpp>

#include "transport/raw_tcp.hpp"
#include "transport/tcp_world.hpp"

// A real rank 0 against a rank 1 that is made by hand.
namespace tcp_by_hand {

using namespace tcp_world;
using tutti::detail::frame;

constexpr std::size_t head_bytes = tutti::detail::segment_header::encoded_bytes + frame::encoded_bytes;

struct against {
  plan p;
  std::string door = p.peers[0].endpoint;
  raw_tcp::accepting_side other;
  std::unique_ptr<tutti::tcp_transport> rank0 = p.transport(0);
  driver d{*rank0};
  // For messages, and for control messages, of each rail in turn; of the first these are the two below.
  std::vector<tutti::os::fd> rails;
  tutti::os::fd stream;
  tutti::os::fd control;

  explicit against(int connections = 1) : against(with(connections)) {}
  explicit against(plan made)
      : p(std::move(made)), other(p.jobs[1], 1, 2, 64, 5s, std::move(p.listeners[1]), p.options.connections) {}
  static plan with(int connections) {
    plan made{2};
    made.options.connections = connections;
    return made;
  }

  /// Rank 0 does what it does until `done()`, for seconds at most.
  template <class Done>
  bool until(Done done) {
    const auto enough = tutti::after(20s);
    bool met = false;
    d.until([&] { return (met = met || done()) || tutti::clock::now() > enough; });
    return met;
  }
  template <class Done>
  bool until_done(const drive::flight& f, Done done) {
    return until([&] { return f.done() || done(); });
  }

  tutti::os::fd dial(const tutti::tcp_job& job, int rail = 0) {
    auto terms = job.terms(1, 2, 0);
    terms.connections = static_cast<std::uint16_t>(p.options.connections);
    terms.connection = static_cast<std::uint16_t>(rail);
    tutti::detail::tcp_connect_attempt dial{raw_tcp::address_of(door), terms, tutti::after(5s)};
    CHECK(until([&] {
      const auto s = dial.progress();
      return s != tutti::detail::tcp_connect_attempt::state::connecting &&
             s != tutti::detail::tcp_connect_attempt::state::greeting;
    }));
    CHECK(dial.where() == tutti::detail::tcp_connect_attempt::state::ready);
    return dial.release().socket;
  }
  /// Both connections stand.
  void meet() {
    control = dial(p.jobs[1]);
    rails.resize(2 * static_cast<std::size_t>(p.options.connections));
    for (int k = 0; k < p.options.connections; ++k) {
      std::optional<tutti::detail::tcp_acceptor::peer> g;
      REQUIRE(until([&] { return (g = other.look()).has_value(); }));
      CHECK(g->rank == 0);
      const auto at = 2 * static_cast<std::size_t>(g->rail);
      if (k > 0) rails[2 * static_cast<std::size_t>(k) + 1] = dial(p.jobs[1], k);
      rails[at] = std::move(g->connection.socket);
    }
    stream = std::move(rails[0]);
    for (const tutti::os::fd* s : {&stream, &control}) CHECK(tutti::os::set_tcp_options(s->native(), {}) == 0);
    const auto first = d.send(1, 1, {});
    CHECK(until([&] { return first->done(); }));
    CHECK(raw_tcp::hear(stream, head_bytes).size() == head_bytes);
  }
};

/// One piece of a stream; the next goes by the rail `next`.
inline std::vector<std::byte> chunk_size(std::span<const std::byte> bytes, int next = 0) {
  const auto head =
      tutti::detail::segment_header{static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint8_t>(next)}.encode();
  std::vector<std::byte> all(head.begin(), head.end());
  all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}
inline std::vector<std::byte> chunk_size(const frame& f, std::span<const std::byte> payload = {}, int next = 0) {
  const auto header = f.encode();
  std::vector<std::byte> all(header.begin(), header.end());
  all.insert(all.end(), payload.begin(), payload.end());
  return chunk_size(all, next);
}
inline std::vector<std::byte> message(std::uint64_t tag, std::span<const std::byte> payload, int next = 0) {
  return chunk_size(frame{frame::kind::eager, tag, payload.size()}, payload, next);
}

}  // namespace tcp_by_hand
