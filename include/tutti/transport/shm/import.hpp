#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/os/descriptor_passing.hpp>
#include <tutti/os/peer_credentials.hpp>
#include <tutti/os/poller.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/socket_io.hpp>
#include <tutti/transport/shm/attachment.hpp>
#include <tutti/transport/shm/handshake.hpp>
#include <tutti/transport/shm/machine.hpp>

namespace tutti {

namespace detail {

/// Connection of a member to the leader of its node, which hands out the shared memory. Its calls throw error when the
/// leader has died or the deadline has passed.
class shm_import_client {
 public:
  shm_import_client(const roster& machine, deadline until) noexcept
      : machine_(machine), leader_(machine.front()), began_(clock::now()), until_(until) {}

  /// Connects to the leader's socket. Throws error{auth_failed} if the kernel says that it is another process's.
  void connect(const std::string& name) {
    const auto where = os::endpoint::unix_socket(name);
    for (;;) {
      os::socket_result started = os::start_connect(where);
      socket_ = std::move(started.socket);
      if (socket_) break;
      if (started.error == ECONNREFUSED) fail_refused("nobody listens at " + name);
      if (started.error != EAGAIN) os::throw_errno(started.error, "cannot connect to " + name + " of " + who());
      wait([] { std::this_thread::sleep_for(std::chrono::milliseconds{1}); });  // the listener's queue is full
    }
    const auto owner = os::peer_credentials(socket_.native());
    if (owner && owner.uid == ::geteuid() && owner.pid == leader_.pid) return;
    throw error{{errc::auth_failed, 0, leader_.rank, 0},
                name + " should belong to " + who() + " of user " + std::to_string(::geteuid()) +
                    ", but the kernel says it belongs to " +
                    (owner ? "pid " + std::to_string(owner.pid) + " of user " + std::to_string(owner.uid) : "nobody")};
  }

  /// Receives the leader's message. Throws the refusal that it may hold, or error{protocol} if it is malformed.
  shm_handshake take_hello() {
    shm_handshake::encoded raw{};
    take(raw);
    const auto hello = shm_handshake::decode(raw);
    if (!hello) fail_protocol("sent something else than shared memory");
    if (hello->version != shm_layout::version) {
      fail_protocol("lays out shared memory by version " + std::to_string(hello->version) + ", this rank by version " +
                    std::to_string(shm_layout::version) + "; build all ranks with the same tutti");
    }
    if (!hello->refusal.ok()) {
      throw error{hello->refusal, "the shared memory of this machine could not be set up: " +
                                      describe_cause(machine_, hello->refusal) + "; its own output says why"};
    }
    return *hello;
  }

  /// Receives exactly `count` descriptors; throws error{protocol} if the leader sends another number.
  std::vector<os::fd> take_descriptors(std::size_t count) {
    while (descriptors_.size() < count) {
      std::array<std::byte, 1> more{};
      const std::size_t before = descriptors_.size();
      take(more);
      if (descriptors_.size() == before) fail_protocol("sent fewer descriptors than it said");
    }
    if (descriptors_.size() > count) fail_protocol("sent more descriptors than it said");
    return std::move(descriptors_);
  }

  /// Tells the leader that this rank cannot use what it got, so that nobody waits for it.
  void complain(const status& why) const noexcept {
    if (!socket_) return;
    shm_handshake answer;
    answer.refusal = why;
    if (os::send_some(socket_.native(), answer.encode()).closed) return;
    // A rank that exits before the leader has read this would be taken for one that died.
    std::array<std::byte, 256> rest{};
    for (const deadline heard = after(std::chrono::milliseconds{200}); clock::now() < heard;) {
      if (os::receive_some(socket_.native(), rest).closed) return;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  [[noreturn]] void fail_protocol(const std::string& what) const {
    throw error{{errc::protocol, 0, leader_.rank, 0}, who() + " " + what};
  }

 private:
  static constexpr duration look_around_every = std::chrono::milliseconds{10};

  [[nodiscard]] std::string who() const { return describe(leader_); }

  void take(std::span<std::byte> payload) {
    os::poller poller;
    poller.add(socket_.native(), os::interest::read, 0);
    std::vector<os::fd> received(os::max_passed_descriptors);
    while (!payload.empty()) {
      const auto got = os::receive_descriptors(socket_.native(), payload, {received.data(), received.size()});
      if (got.io.error == EMSGSIZE)
        throw error{{errc::out_of_resources, 0, -1, EMFILE},
                    "no descriptors left for the shared memory of " + who() + " (raise the limit: ulimit -n)"};
      if (got.io.closed) fail_refused("it closed the connection");
      for (std::size_t i = 0; i < got.descriptors; ++i) descriptors_.push_back(std::move(received[i]));
      payload = payload.subspan(got.io.bytes);
      if (got.io.would_block()) wait([&] { (void)poller.wait((std::min)(remaining(until_), look_around_every)); });
    }
  }

  template <class Wait>
  void wait(Wait a_moment) {
    const auto now = clock::now();
    if (now >= until_) {
      throw error{{errc::rendezvous, 0, leader_.rank, 0},
                  who() + " did not hand out the shared memory of this machine within " +
                      format_duration(now - began_) + "; it may wait for another rank, or be stopped"};
    }
    expect_life();
    a_moment();
  }

  void expect_life() const {
    if (os::is_alive(leader_.pid, leader_.start_time)) return;
    throw error{{errc::peer_lost, 0, leader_.rank, 0},
                who() + " died before it handed out the shared memory of this machine; its output says why"};
  }

  // The leader listens before it publishes the name, so a refused connection means that it has given up.
  [[noreturn]] void fail_refused(const std::string& how) const {
    // A process that is killed closes its sockets a little before it counts as dead.
    const deadline sure = (std::min)(until_, after(std::chrono::milliseconds{100}));
    for (expect_life(); clock::now() < sure; expect_life()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    throw error{{errc::rendezvous, 0, leader_.rank, 0},
                who() + " does not hand out the shared memory of this machine (" + how +
                    "): it failed, its roster does not list this process, or it is in another network namespace"};
  }

  const roster& machine_;
  const rank_info& leader_;
  deadline began_, until_;
  os::fd socket_;
  std::vector<os::fd> descriptors_;
};

/// Maps the segment that the leader has handed out, after checking that it is meant for this rank, and waits for the
/// other ranks.
inline shm_attachment take_place(shm_import_client& client, const shm_machine& machine, deadline until) {
  const shm_handshake hello = client.take_hello();
  const auto ranks = machine.ranks.size();
  if (hello.ranks != ranks || hello.local_rank != static_cast<std::uint32_t>(machine.local_rank) ||
      (hello.bells != 0 && hello.bells != hello.ranks) || hello.heap_bytes > shm_layout::most_heap_bytes)
    client.fail_protocol("counts " + std::to_string(hello.ranks) + " ranks on this machine, this rank " +
                         std::to_string(ranks));
  const auto layout = shm_layout::of(static_cast<int>(ranks), hello.heap_bytes);
  if (layout.area_bytes != hello.area_bytes || layout.heap_bytes != hello.heap_bytes)
    client.fail_protocol("lays out shared memory differently; build all ranks with the same tutti");

  std::vector<os::fd> descriptors = client.take_descriptors(1 + std::size_t{hello.bells});
  shm_attachment place{os::shm_segment::adopt(std::move(descriptors.front()), layout.bytes()), layout, machine.ranks,
                       machine.local_rank};
  std::vector<os::event_fd> bells;
  for (std::size_t r = 1; r < descriptors.size(); ++r) bells.emplace_back(std::move(descriptors[r]));
  place.keep_bells(std::move(bells));
  place.register_rank();
  place.await_everyone(until);
  return place;
}

}  // namespace detail

/// Fetches the shared memory of this node from its leader, maps it, and waits until every rank of the node has. Every
/// rank but the node's lowest calls it, once, with the name() of the leader's shm_export; `all` is the roster of the
/// world or of the node, `rank` this process's rank in it. Call it in the thread that lives longest (see
/// os::beacon_owner). Throws error{auth_failed} if the name is not the leader's, {protocol} if the leader has another
/// version of tutti, {peer_lost} if a rank died, and {rendezvous} if the leader refused or the deadline passed; the
/// message names the ranks that were waited for.
[[nodiscard]] inline shm_attachment shm_import(const std::string& name, const roster& all, int rank, deadline until) {
  const detail::shm_machine machine{all, rank};
  if (machine.local_rank == 0)
    throw usage_error(describe(machine.ranks.front()) + " is the lowest of its machine: it makes the shm_export");
  detail::shm_import_client client{machine.ranks, until};
  client.connect(name);
  try {
    return detail::take_place(client, machine, until);
  } catch (const error& e) {
    client.complain(e.cause());
    throw;
  } catch (const std::bad_alloc&) {
    client.complain({errc::out_of_resources, 0, -1, ENOMEM});
    throw;
  }
}

}  // namespace tutti
