#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/transport/messaging/mesh.hpp>
#include <tutti/transport/sim/network.hpp>

namespace tutti {

/// Byte stream to another simulated rank: a sim_stream for each direction.
class sim_pipe {
 public:
  sim_pipe(sim_stream& out, sim_stream& in) noexcept : out_(&out), in_(&in) {}

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept try {
    return out_->write(a, b);
  } catch (const std::bad_alloc&) {
    failure_ = {errc::out_of_resources};
    return 0;
  }
  std::size_t read(std::span<std::byte> into) noexcept { return in_->read(into); }
  [[nodiscard]] status failure() const noexcept { return failure_; }
  void open() noexcept {}

 private:
  sim_stream* out_;
  sim_stream* in_;
  status failure_{};
};

/// Transport of one rank of a simulated world. It lets other ranks run when it is polled in vain or parked, and now and
/// then elsewhere. It belongs to the thread and the fiber of its rank. From anywhere else, only abort() and unpark()
/// may be called; poll() then fails the world with errc::unsupported.
class sim_transport : public mesh<sim_pipe> {
 public:
  sim_transport(std::shared_ptr<sim_network> network, int rank)
      : mesh(rank, network->size()), network_(std::move(network)) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank) connect(peer, network_->stream(rank, peer), network_->stream(peer, rank));
    network_->watch(rank, [this] { return awaited(); });
  }
  sim_transport(const sim_transport&) = delete;
  sim_transport& operator=(const sim_transport&) = delete;
  ~sim_transport() { leave(); }

  bool poll() noexcept {
    if (!schedule().is(rank())) return refuse_other_thread();
    schedule().pause(rank());
    bool moved = look();
    if (!moved) {
      schedule().idle(rank());
      moved = look();
    }
    if (moved) schedule().moved(rank());
    return moved;
  }
  void tick(deadline) noexcept {}
  void abort(status why) noexcept {
    if (!schedule().is(rank())) return network_->report(why);
    network_->fail(why, rank());
    fail_all(network_->cause());
  }
  void leave() noexcept { network_->leave(rank()); }
  void note_issue(std::uint64_t sequence) noexcept {
    network_->note_issue(rank(), sequence);
    schedule().begun(rank());
  }

  /// Does nothing: a rank that waits for ever is found at once, and real time must not change what happens.
  void ask(const routine::promise_type*, std::uint64_t) noexcept {}

  [[nodiscard]] int waiting_for(const routine::promise_type* work, std::uint64_t = 0) const noexcept {
    return channel_waits_for(work);
  }
  [[nodiscard]] std::string describe(int peer) const {
    return "rank " + std::to_string(peer) + " (simulated: seed " + std::to_string(network_->options().seed) +
           ", step " + std::to_string(schedule().steps()) + "), last seen at #" +
           std::to_string(network_->issued(peer));
  }
  /// Returns far too many, so that a waiting rank does not spin, and no choice depends on measured time.
  [[nodiscard]] double ranks_per_core() const noexcept { return 1000; }

  void prepare_park() noexcept {}
  void park(duration) noexcept {
    if (schedule().is(rank())) schedule().park(rank());
  }
  void finish_park() noexcept {}
  void unpark() noexcept { schedule().wake(rank()); }

  [[nodiscard]] bool maps(int) const noexcept { return network_->options().memory == sim_memory::shared; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) { return network_->allocate(bytes); }
  void deallocate(std::byte* p) noexcept { network_->deallocate(p); }
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    const auto where = reinterpret_cast<std::uintptr_t>(p);
    return network_->maps(where, bytes) ? std::optional<std::uint64_t>{where} : std::nullopt;
  }
  [[nodiscard]] std::byte* resolve(int, std::uint64_t where, std::size_t bytes = 1) const noexcept {
    const auto p = static_cast<std::uintptr_t>(where);
    return network_->maps(p, bytes) ? reinterpret_cast<std::byte*>(p) : nullptr;
  }
  [[nodiscard]] int process_of(int) const noexcept { return 0; }
  /// Returns false: a lost rank is stopped while it waits, never while it accesses memory.
  [[nodiscard]] bool gone(int) const noexcept { return false; }
  void ring(int peer) noexcept {
    schedule().wake(peer);
    schedule().pause(rank());
    // A lost rank that is resumed here, to be unwound, must not access the memory of others.
    if (network_->lost() == rank()) fail_all(network_->heard(rank()));
  }

 private:
  [[nodiscard]] sim_schedule& schedule() const noexcept { return network_->schedule(); }

  bool look() noexcept {
    schedule().forget_news(rank());
    if (const status s = network_->heard(rank()); !s.ok()) fail_all(s);
    const bool moved = poll_channels([this](const status& s) { abort(s); });
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank() && network_->has_left(peer, rank()) && still_needs(peer)) abort({errc::peer_left, 0, peer, 0});
    return ready_.run() || moved;
  }

  /// Fails the world: a caller that is not this rank's own fiber cannot move anything here, and would wait for ever.
  bool refuse_other_thread() noexcept {
    constexpr status why{errc::unsupported};
    network_->report(why);
    fail_all(why);
    return ready_.run();
  }

  [[nodiscard]] int awaited() const noexcept {
    for (int peer = 0; peer < size(); ++peer)
      if (condition_waits_on(peer) || (channel(peer) && channel(peer)->waits())) return peer;
    return -1;
  }

  std::shared_ptr<sim_network> network_;
};

}  // namespace tutti
