#pragma once
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
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
#include <tutti/wire/hex.hpp>
#include <tutti/wire/random.hpp>

namespace tutti {

/// Options of the shared memory of a node; those of its leader count.
struct shm_options {
  std::uint64_t heap_bytes = 0;  ///< address space for each rank's heap; 0: shm_layout::default_heap_bytes()
  shm_control_block::sleep sleep_on =
      shm_control_block::sleep::on_futex;  ///< on_descriptor: hands out an eventfd per rank, too
};

/// Leader's side of setting up shared memory: makes the segment and hands it to the other ranks of its node. Only the
/// lowest rank of a node makes one, before the roll call, which carries name() to the others. The segment has no name;
/// that of the socket vanishes when hand_out() returns or the offer is destroyed.
class shm_export {
 public:
  /// Makes the segment for `local_ranks` ranks, this one included, and listens. Throws usage_error, and
  /// error{out_of_resources} if memory is short.
  explicit shm_export(int local_ranks, shm_options options = {}) : options_(options), name_(random_name()) {
    make_segment(local_ranks);
    if (options.sleep_on == shm_control_block::sleep::on_descriptor)
      bells_.resize(static_cast<std::size_t>(local_ranks));
    listener_ = os::listen_on(os::endpoint::unix_socket(name_));
  }

  /// Returns the name of the socket, which the members pass to shm_import().
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Hands the segment to every other rank of this node, and waits until all have mapped it; called once. `all` is the
  /// roster of the world or of the node, `rank` this process's rank in it. A process that is not in the roster, or of
  /// another user, gets nothing and delays nobody. Throws error{peer_lost} if a member dies, and error{rendezvous} at
  /// the deadline, which names the ranks that did not come; the members' shm_import() fails, too.
  [[nodiscard]] shm_attachment hand_out(const roster& all, int rank, deadline until) {
    return hand_out(all, rank, until, [] {});
  }
  /// Does the same, and calls `look()` now and then. It may throw error, which the members then fail with as well.
  template <class Look>
  [[nodiscard]] shm_attachment hand_out(const roster& all, int rank, deadline until, Look look) {
    detail::shm_machine machine{all, rank};
    if (machine.local_rank != 0 || static_cast<int>(machine.ranks.size()) != layout_.ranks || !segment_) {
      throw usage_error("hand_out() is for the lowest rank of a machine, once: this is number " +
                        std::to_string(machine.local_rank) + " of " + std::to_string(machine.ranks.size()) +
                        ", and the offer is for " + std::to_string(layout_.ranks));
    }
    os::fd listener = std::move(listener_);
    shm_attachment place{std::move(segment_), layout_, machine.ranks, 0};
    place.register_rank();
    std::vector<int> absent;
    for (int r = 1; r < layout_.ranks; ++r) absent.push_back(r);
    std::vector<served_member> served;
    const auto look_around = [&] {
      read_complaints(served, place);
      look();
    };
    const auto give_up = [&](status why) noexcept {
      if (why.peer < 0) why.peer = rank;
      place.area().fail(why);
      // Descriptors may be short, and telling the others takes one.
      bells_.clear();
      place.segment() = {};
      if (listener) turn_away(listener.native(), absent, place, why, (std::min)(until, after(patience)));
    };
    try {
      serve(listener.native(), absent, served, place, until, look_around);
      listener.reset();
      place.await_everyone(until, look_around);
    } catch (const error& e) {
      give_up(e.cause());
      throw;
    } catch (const std::bad_alloc&) {
      give_up({errc::out_of_resources, 0, rank, ENOMEM});
      throw;
    }
    place.keep_bells(std::move(bells_));
    return place;
  }

 private:
  /// Member that was given the segment, and may still say that it cannot use it.
  struct served_member {
    int rank;
    os::fd socket;
  };
  static constexpr duration look_around_every = std::chrono::milliseconds{10};
  static constexpr duration patience = std::chrono::seconds{2};  // of a failed leader with members still to come

  static std::string random_name() {
    std::array<std::byte, 16> random;
    if (!wire::kernel_random(random)) os::throw_errno(errno, "no random bytes for the name of a socket");
    return "@tutti-" + wire::to_hex(random);
  }

  void make_segment(int local_ranks) {
    std::uint64_t heap = options_.heap_bytes != 0 ? options_.heap_bytes : shm_layout::default_heap_bytes(local_ranks);
    for (;; heap /= 2) {
      layout_ = shm_layout::of(local_ranks, heap);
      if (layout_.bytes() > shm_layout::file_limit()) {
        throw error{{errc::out_of_resources},
                    "shared memory for " + std::to_string(local_ranks) + " ranks needs a segment of " +
                        os::format_bytes(layout_.bytes()) + ", but files may have " +
                        os::format_bytes(shm_layout::file_limit()) + "; raise the limit: ulimit -f"};
      }
      segment_ = os::shm_segment::create(layout_.bytes());
      if (options_.heap_bytes != 0 || heap / 2 < shm_layout::least_heap_bytes || fits()) break;
    }
    segment_.reserve(0, layout_.area_bytes);
  }

  // Address space may be short for reasons that no limit shows.
  [[nodiscard]] bool fits() const {
    try {
      (void)segment_.map();
      return true;
    } catch (const error&) {
      return false;
    }
  }

  template <class Look>
  void serve(int listener, std::vector<int>& absent, std::vector<served_member>& served, const shm_attachment& place,
             deadline until, Look look) {
    os::poller poller;
    poller.add(listener, os::interest::read, 0);
    const auto began = clock::now();
    for (deadline look_around = began; !absent.empty();) {
      os::socket_result member = os::accept_connection(listener);
      const bool came = static_cast<bool>(member.socket);
      if (!came && member.error != EAGAIN)
        place.give_up(errc::out_of_resources, 0,
                      describe(place.machine().front()) +
                          " cannot hand out the shared memory of this machine: " + os::errno_text(member.error),
                      member.error);
      if (came) {
        const int r = recognize(member.socket.native(), place.machine(), absent);
        if (r >= 0) {
          if (give(member.socket.native(), r, place, until)) std::erase(absent, r);
          served.push_back({r, std::move(member.socket)});  // a member that has closed may have said why
        }
      }
      const auto now = clock::now();
      if (now >= look_around) {
        look_around = now + look_around_every;
        look();
        place.expect_life();
      }
      if (now >= until) {
        place.give_up(errc::rendezvous, absent.front(),
                      detail::describe_some(place.machine(), absent) +
                          " did not come for the shared memory of this machine within " +
                          detail::format_duration(now - began) + "; failed before, or stopped?");
      }
      if (!came) (void)poller.wait((std::min)(remaining(until), look_around_every));
    }
  }

  /// Reads complaints of members that cannot use what they were given. Tells the other members, and throws the first.
  static void read_complaints(std::vector<served_member>& served, const shm_attachment& place) {
    for (served_member& v : served) {
      detail::shm_handshake::encoded raw{};
      if (!v.socket || os::receive_some(v.socket.native(), raw).bytes != raw.size()) continue;
      v.socket.reset();
      const auto said = detail::shm_handshake::decode(raw);
      if (!said || said->refusal.ok()) continue;
      const auto number = said->refusal.error_number();
      place.give_up(said->refusal.code, v.rank,
                    describe(place.machine()[static_cast<std::size_t>(v.rank)]) +
                        " cannot take the shared memory of this machine: " +
                        (number != 0 ? os::errno_text(number) : make_error_code(said->refusal.code).message()) +
                        shm_attachment::see_there,
                    number);
    }
  }

  // Members that have yet to come are told the cause; without it they would name the leader.
  void turn_away(int listener, std::vector<int>& absent, const shm_attachment& place, status why,
                 deadline until) const noexcept {
    for (int refused = 0; refused < shm_layout::most_ranks || clock::now() < until;) {
      const os::socket_result member = os::accept_connection(listener);
      if (member.socket) {
        ++refused;
        const int r = recognize(member.socket.native(), place.machine(), absent);
        if (r < 0) continue;
        detail::shm_handshake hello = hello_for(r);
        hello.refusal = why;
        (void)os::send_descriptors(member.socket.native(), hello.encode(), {});
        std::erase(absent, r);
        continue;
      }
      std::erase_if(absent, [&](int r) {
        const rank_info& p = place.machine()[static_cast<std::size_t>(r)];
        return !os::is_alive(p.pid, p.start_time);
      });
      if (absent.empty() || clock::now() >= until) return;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  // Only the kernel's credentials show reliably which process has connected.
  static int recognize(int member, const roster& machine, const std::vector<int>& absent) noexcept {
    const auto who = os::peer_credentials(member);
    if (!who || who.uid != ::geteuid()) return -1;
    for (const int r : absent) {
      const rank_info& p = machine[static_cast<std::size_t>(r)];
      if (p.pid == who.pid) return os::is_alive(who.pid, p.start_time) ? r : -1;
    }
    return -1;
  }

  [[nodiscard]] detail::shm_handshake hello_for(int rank) const noexcept {
    detail::shm_handshake hello;
    hello.ranks = static_cast<std::uint32_t>(layout_.ranks);
    hello.local_rank = static_cast<std::uint32_t>(rank);
    hello.bells = static_cast<std::uint32_t>(bells_.size());
    hello.area_bytes = layout_.area_bytes;
    hello.heap_bytes = layout_.heap_bytes;
    return hello;
  }

  [[nodiscard]] bool give(int member, int rank, const shm_attachment& place, deadline until) const {
    const auto hello = hello_for(rank).encode();
    std::vector<int> descriptors{place.segment().native()};
    for (const os::event_fd& bell : bells_) descriptors.push_back(bell.native());
    std::span<const int> rest{descriptors.data(), descriptors.size()};
    std::span<const std::byte> payload{hello};
    while (!rest.empty()) {
      const auto some = rest.first((std::min)(rest.size(), os::max_passed_descriptors));
      const os::io_result sent = os::send_descriptors(member, payload, some);
      if (sent.bytes == payload.size()) {
        rest = rest.subspan(some.size());
        payload = payload.first(1);
        continue;
      }
      // The kernel limits the number of descriptors in flight; the members are receiving them.
      const bool later = sent.would_block() || sent.error == ETOOMANYREFS;
      if (!later || clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }

  shm_options options_;
  std::string name_;
  shm_layout layout_;
  os::shm_segment segment_;
  std::vector<os::event_fd> bells_;
  os::fd listener_;
};

}  // namespace tutti
