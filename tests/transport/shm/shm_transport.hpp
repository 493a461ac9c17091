#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/messaging/mesh.hpp>
#include <tutti/transport/shm/domain.hpp>
#include <tutti/transport/shm/ring_stream.hpp>

namespace tutti_test {

/// Transport, for tests of what it is made of, of a world of processes on one node, which map one segment of memory. A
/// rank that is killed is reported to every other as errc::peer_lost within milliseconds, whatever it was doing and
/// however much memory it had.
class shm_transport : public tutti::mesh<tutti::ring_stream> {
 public:
  /// Takes what shm_export::hand_out() or shm_import() returned. Throws usage_error if the world has ranks on
  /// other nodes.
  explicit shm_transport(tutti::shm_attachment place)
      : tutti::mesh<tutti::ring_stream>(place.local_rank(), place.local_size()), domain_(std::move(place)) {
    for (int r = 0; r < size(); ++r)
      if (domain_.who(r).rank != r) {
        throw tutti::usage_error(
            tutti::describe(domain_.who(r)) + " is number " + std::to_string(r) +
            " of this machine: this world has ranks on other machines, which shared memory cannot reach");
      }
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) connect(peer, domain_.area(), rank(), peer, domain_.bell());
  }
  shm_transport(const shm_transport&) = delete;
  shm_transport& operator=(const shm_transport&) = delete;
  ~shm_transport() { leave(); }

  bool poll() noexcept {
    if (const tutti::status s = domain_.area().failure(); !s.ok()) fail_all(s);
    return poll_channels([this](const tutti::status& s) { abort(s); });
  }
  void tick(tutti::deadline) noexcept {
    if (!failure().ok()) return;
    domain_.check([this](int r, tutti::os::liveness state) {
      if (state == tutti::os::liveness::dead)
        abort(tutti::status::lost(r, tutti::loss::died));
      else if (still_needs(r))
        abort({tutti::errc::peer_left, 0, r, 0});
    });
  }
  void abort(tutti::status why) noexcept {
    if (!failure().ok()) return;
    domain_.fail(why);
    fail_all(domain_.area().failure());
  }
  void leave() noexcept { domain_.leave(); }
  void note_issue(std::uint64_t sequence) noexcept { domain_.note_issue(sequence); }

  [[nodiscard]] int waiting_for(const tutti::routine::promise_type* work, std::uint64_t sequence = 0) const noexcept {
    const int behind = domain_.furthest_behind(sequence);
    return behind >= 0 ? behind : channel_waits_for(work);
  }
  [[nodiscard]] std::string describe(int peer) const {
    return peer >= 0 && peer < size() ? domain_.describe(peer) : "an unknown rank";
  }
  [[nodiscard]] double ranks_per_core() const noexcept { return domain_.ranks_per_core(); }

  void prepare_park() noexcept { domain_.bell().prepare(tutti::shm_control_block::sleep::on_futex); }
  void park(tutti::duration d) noexcept { domain_.bell().sleep(d); }
  void finish_park() noexcept { domain_.bell().finish(); }
  void unpark() noexcept { domain_.bell().wake_self(); }

  [[nodiscard]] bool maps(int) const noexcept { return true; }
  /// Allocates zeroed memory that every rank can map, aligned to 4096 bytes. Throws error{out_of_resources}.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) { return domain_.heap().allocate(bytes); }
  void deallocate(std::byte* p) noexcept { domain_.heap().deallocate(p); }
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    return domain_.heap().locate(p, bytes);
  }
  /// Returns the memory of the caller's that every rank maps.
  [[nodiscard]] tutti::shm_registrations* registrations() noexcept { return &domain_.registrations(); }
  /// Returns the address here of [where, where + bytes) in the heap of `peer`; null if that leaves the heap. Only the
  /// peer knows whether it is allocated.
  [[nodiscard]] std::byte* resolve(int peer, std::uint64_t where, std::size_t bytes = 1) const noexcept {
    return domain_.resolve(peer, where, bytes);
  }
  [[nodiscard]] int process_of(int peer) const noexcept { return domain_.who(peer).pid; }
  [[nodiscard]] bool gone(int peer) noexcept { return domain_.ended(peer); }
  void ring(int peer) noexcept { domain_.bell().ring(peer); }

 private:
  tutti::shm_domain domain_;
};

}  // namespace tutti_test
