#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/process.hpp>
#include <tutti/transport/messaging/mesh.hpp>
#include <tutti/transport/shm/domain.hpp>
#include <tutti/transport/shm/ring_stream.hpp>
#include <tutti/transport/tcp/domain.hpp>
#include <tutti/transport/tcp/stream.hpp>

namespace tutti {

/// Byte stream to a rank on any node: ring buffers in shared memory within the node, TCP to other nodes.
class host_stream {
 public:
  template <class Kind, class... Args>
  explicit host_stream(std::in_place_type_t<Kind> kind, Args&&... args) : stream_(kind, std::forward<Args>(args)...) {}

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    if (auto* ring = std::get_if<ring_stream>(&stream_)) return ring->write(a, b);
    return socket()->write(a, b);
  }
  std::size_t read(std::span<std::byte> into) noexcept {
    if (auto* ring = std::get_if<ring_stream>(&stream_)) return ring->read(into);
    return socket()->read(into);
  }
  [[nodiscard]] status failure() const noexcept {
    const auto* s = std::get_if<tcp_stream>(&stream_);
    return s ? s->failure() : status{};
  }
  void open() noexcept {
    if (tcp_stream* s = socket()) s->open();
  }
  /// Returns the TCP stream; null for a rank of this node.
  [[nodiscard]] tcp_stream* socket() noexcept { return std::get_if<tcp_stream>(&stream_); }

 private:
  std::variant<ring_stream, tcp_stream> stream_;
};

/// Transport of a world of processes, and the default: shared memory within a node, TCP between nodes. If all ranks are
/// on one node, it sleeps on a futex and never polls a socket; otherwise it sleeps on descriptors.
class host_transport : public mesh<host_stream> {
 public:
  /// Connects this rank with all others. `memory` is its attachment to the shared memory of its node, `listener` the
  /// socket that other nodes connect to; either may be missing if the roster has no use for it. Throws usage_error if
  /// they do not reach every rank.
  host_transport(roster all, int rank, std::optional<shm_attachment> memory, std::optional<tcp_listener> listener = {},
                 tcp_job job = {}, const tcp_options& options = {})
      : mesh(rank, static_cast<int>(all.size())), all_(std::move(all)), local_(all_.size(), -1) {
    if (memory) shared_.emplace(std::move(*memory));
    if (shared_)
      for (int r = 0; r < shared_->size(); ++r) local_[static_cast<std::size_t>(shared_->who(r).rank)] = r;
    // A world on one node needs no network, and must not pay for one.
    const int here = shared_ ? shared_->size() : 1;
    if (listener && here < size()) network_.emplace(std::move(*listener), all_, rank, std::move(job), options);
    for (int p = 0; p < size(); ++p)
      if (p != rank) reach(p);
    if (!shared_ || !network_ || shared_->size() == 1) return;
    if (shared_->descriptor() < 0) {
      throw usage_error("the ranks of " + who(rank).host + " share memory with futexes, but rank " +
                        std::to_string(rank) +
                        " also waits for the network: hand it out with shm_options::sleep_on on_descriptor");
    }
    network_->listen_to(shared_->descriptor());
  }
  host_transport(const host_transport&) = delete;
  host_transport& operator=(const host_transport&) = delete;
  ~host_transport() { leave(); }

  bool poll() noexcept {
    if (shared_ && failure().ok())
      if (const status s = shared_->area().failure(); !s.ok()) abort(s);
    const bool moved = network_ && network_->poll([this](int p) { return channel(p)->waits(); });
    return poll_channels([this](const status& s) { abort(s); }) || moved;
  }

  void tick(deadline now) noexcept {
    if (shared_ && failure().ok())
      shared_->check([this](int r, os::liveness state) {
        const int p = shared_->who(r).rank;
        if (state == os::liveness::dead)
          abort(status::lost(p, loss::died));
        else if (still_needs(p))
          abort({errc::peer_left, 0, p, 0});
      });
    if (!network_) return;
    network_->tick(
        now, [this](int p) { return channel(p)->waits(); }, [this](int p) { return channel(p)->said_bye(); });
    for (int p = 0; p < size(); ++p)
      if (remote(p) && (channel(p)->said_bye() || network_->gone_in_order(p)) && still_needs(p))
        abort({errc::peer_left, 0, p, 0});
  }

  void abort(status why) noexcept {
    if (!failure().ok()) return;
    if (shared_) {
      shared_->fail(why);
      why = shared_->area().failure();  // another rank of this node may have been first
    }
    fail_all(why);
    if (!network_) return;
    network_->abort(why);
    for (int p = 0; p < size(); ++p)
      if (remote(p)) channel(p)->say(detail::frame::abort_with(why));
  }

  void leave() noexcept {
    if (std::exchange(left_, true)) return;
    if (shared_) shared_->end_registrations();  // takes long, and none of the time for the goodbye
    const deadline began = clock::now();
    if (network_ && failure().ok()) {
      network_->prepare_to_leave(began, [this] { return nothing_queued(); });
      for (int p = 0; p < size(); ++p)
        if (remote(p)) channel(p)->say({detail::frame::kind::bye, 0, 0});
    }
    if (shared_) shared_->leave();
    if (network_) network_->close(began);
  }

  void note_issue(std::uint64_t sequence) noexcept {
    if (shared_) shared_->note_issue(sequence);
    if (network_) network_->note_issue(sequence);
  }
  void note_end(std::uint64_t calls, std::uint64_t hash) noexcept {
    if (network_) network_->note_end(calls, hash);
  }
  /// Returns the rank that an operation waits for. `sequence` is its number, if the world has called it; else 0.
  [[nodiscard]] int waiting_for(const routine::promise_type* work, std::uint64_t sequence = 0) const noexcept {
    if (shared_)
      if (const int r = shared_->furthest_behind(sequence); r >= 0) return shared_->who(r).rank;
    const int direct = channel_waits_for(work);
    if (direct < 0 || !remote(direct)) return direct;
    return network_->straggler([&](int p) { return remote(p) && channel(p)->holds(work); });
  }
  [[nodiscard]] std::string describe(int p) const {
    if (p < 0 || p >= size()) return "an unknown rank";
    if (const int r = local_[static_cast<std::size_t>(p)]; r >= 0) return shared_->describe(r);
    return network_ ? network_->describe(p, remote(p) ? channel(p)->last_sequence() : 0) : tutti::describe(who(p));
  }
  [[nodiscard]] const roster& peers() const noexcept { return all_; }
  /// Returns a number that is equal for ranks that share memory. If those of a node do not, each has a number of its
  /// own.
  [[nodiscard]] int machine_of(int p) const noexcept {
    for (const rank_info& lowest : all_)
      if (lowest.node_rank == who(p).node_rank && !lowest.shared_memory.empty()) return who(p).node_rank;
    return -1 - p;
  }
  [[nodiscard]] double ranks_per_core() const noexcept { return tutti::ranks_per_core(who(rank())); }

  /// Returns the ranks per core, rounded up, of the node where they are most. All ranks get the same, from the roster.
  [[nodiscard]] int most_ranks_per_core() const noexcept {
    int most = 1;
    for (const rank_info& p : all_)
      if (p.local_cpus > 0) most = (std::max)(most, (p.local_size + p.local_cpus - 1) / p.local_cpus);
    return most;
  }

  void prepare_park() noexcept {
    if (network_) network_->prepare_park();
    if (shared_)
      shared_->bell().prepare(network_ ? shm_control_block::sleep::on_descriptor : shm_control_block::sleep::on_futex);
  }
  void park(duration at_most) noexcept {
    if (network_) return network_->park(at_most);
    if (shared_) shared_->bell().sleep(at_most);
  }
  void finish_park() noexcept {
    if (shared_) shared_->bell().finish();
  }
  void unpark() noexcept {
    if (network_) return network_->unpark();
    if (shared_) shared_->bell().wake_self();
  }

  [[nodiscard]] bool maps(int peer) const noexcept { return local_[static_cast<std::size_t>(peer)] >= 0; }
  /// Allocates zeroed memory that the ranks of this node can map, aligned to 4096 bytes. Throws
  /// error{out_of_resources}; without shared memory, bad_alloc.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if (shared_) return shared_->heap().allocate(bytes);
    auto* p = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{4096}));
    std::memset(p, 0, bytes);
    return p;
  }
  void deallocate(std::byte* p) noexcept {
    if (shared_) return shared_->heap().deallocate(p);
    ::operator delete(p, std::align_val_t{4096});
  }
  /// Returns the bytes of this rank's memory that the ranks of its node can map: slots, allocate() and registered.
  [[nodiscard]] std::uint64_t shared_bytes() const noexcept { return shared_ ? shared_->heap().reserved_bytes() : 0; }
  /// Returns the number of attempts to connect to other nodes that were started again.
  [[nodiscard]] std::uint64_t connection_retries() const noexcept { return network_ ? network_->retries() : 0; }
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    return shared_ ? shared_->heap().locate(p, bytes) : std::nullopt;
  }
  /// Returns the memory of the caller's that the ranks of this node map; null if no other rank shares memory.
  [[nodiscard]] shm_registrations* registrations() noexcept {
    return shared_ && shared_->size() > 1 ? &shared_->registrations() : nullptr;
  }
  /// Returns the address here of [where, where + bytes) in the heap of `peer`; null if that is not mapped.
  [[nodiscard]] std::byte* resolve(int peer, std::uint64_t where, std::size_t bytes = 1) const noexcept {
    const int r = peer >= 0 && peer < size() ? local_[static_cast<std::size_t>(peer)] : -1;
    return r >= 0 ? shared_->resolve(r, where, bytes) : nullptr;
  }
  [[nodiscard]] int process_of(int peer) const noexcept {
    const int r = local_[static_cast<std::size_t>(peer)];
    return r >= 0 ? shared_->who(r).pid : 0;
  }
  [[nodiscard]] bool gone(int peer) noexcept {
    const int r = local_[static_cast<std::size_t>(peer)];
    return r >= 0 && shared_->ended(r);
  }
  void ring(int peer) noexcept {
    if (const int r = local_[static_cast<std::size_t>(peer)]; r >= 0) shared_->bell().ring(r);
  }

 private:
  [[nodiscard]] const rank_info& who(int p) const noexcept { return all_[static_cast<std::size_t>(p)]; }
  [[nodiscard]] bool remote(int p) const noexcept { return p != rank() && local_[static_cast<std::size_t>(p)] < 0; }

  void reach(int p) {
    if (const int r = local_[static_cast<std::size_t>(p)]; r >= 0)
      return connect(p, std::in_place_type<ring_stream>, shared_->area(), shared_->rank(), r, shared_->bell());
    if (!network_)
      throw usage_error(tutti::describe(who(p)) +
                        " is on another machine, but this rank has no connection to a network");
    connect(p, std::in_place_type<tcp_stream>, network_->stream_keeper(), rank(), p, network_->connections());
    network_->add(p, *channel(p)->stream().socket());
  }

  bool nothing_queued() noexcept {
    bool moved = false, none = true;
    for (int p = 0; p < size(); ++p) {
      if (!remote(p) || !channel(p)->wants_to_write() || !channel(p)->progress(moved).ok()) continue;
      none = none && !channel(p)->wants_to_write();
    }
    return none;
  }

  roster all_;
  std::vector<int> local_;  // local rank of a world rank; -1 on another node
  std::optional<shm_domain> shared_;
  std::optional<tcp_domain> network_;
  bool left_ = false;
};

}  // namespace tutti
