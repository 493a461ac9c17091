#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <tutti/async/routine.hpp>
#include <tutti/async/scratch_pool.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/messaging/call_log.hpp>

namespace tutti {

/// Awaitable of a routine.
template <class R>
concept routine_awaitable = requires(R& r, std::coroutine_handle<routine::promise_type> h) {
  { r.await_ready() } -> std::same_as<bool>;
  r.await_suspend(h);
  r.await_resume();
};

/// Link over which algorithms exchange messages between ranks. `send` and `recv` start at once; buffers stay valid
/// until their awaitable has finished. Messages between two ranks match by tag, those with equal tags in order; both
/// sides must know the length. A failed transfer ends the whole operation (see routine). All calls are made under the
/// engine's lock.
template <class L>
concept message_link =
    requires(L& l, int peer, std::uint64_t tag, std::span<const std::byte> out, std::span<std::byte> in) {
      { l.rank() } noexcept -> std::same_as<int>;
      { l.size() } noexcept -> std::same_as<int>;
      { l.send(peer, tag, out) } -> routine_awaitable;
      { l.recv(peer, tag, in) } -> routine_awaitable;
      { l.temporary() } noexcept -> std::same_as<scratch_pool&>;  // temporary memory of algorithms
    };

/// Link that can also be polled, checked for lost peers, put to sleep and ended.
template <class L>
concept transport =
    message_link<L> &&
    requires(L& l, int peer, status why, deadline now, duration d, const routine::promise_type* work, std::uint64_t tag,
             std::uint32_t context, const call_log::entry& call, bool (*in_flight)(std::uint64_t), std::uint16_t id,
             std::span<const int> among, std::span<const std::byte> out, std::span<std::byte> in) {
      { l.send(peer, tag, out, id) } -> routine_awaitable;  // with the short id of the call, which the peer compares
      { l.recv(peer, tag, in, id) } -> routine_awaitable;
      { l.recv_any(among, tag, in) } -> routine_awaitable;  // the first message of a rank of `among`, if empty of any
      { l.recv_any(among, tag, in).from() } -> std::same_as<int>;  // the rank that sent it
      { l.refuse(why) } -> routine_awaitable;                      // never finishes: the operation ends with `why`
      { l.has_ready() } noexcept -> std::same_as<bool>;            // a poll has something to resume or to report
      { l.poll() } noexcept -> std::same_as<bool>;                 // true if anything moved
      { l.tick(now) } noexcept;   // called about every millisecond: are the peers alive?
      { l.abort(why) } noexcept;  // idempotent, the first cause stays; fails all transfers, tells the peers
      { l.failure() } noexcept -> std::same_as<status>;
      { l.waiting_for(work, tag) } noexcept -> std::same_as<int>;  // the world rank that it waits for, or -1
      { l.describe(peer) } -> std::same_as<std::string>;           // "rank 3 (host b, pid 712), last seen at #39"
      { l.ranks_per_core() } noexcept -> std::same_as<double>;
      { l.note_issue(tag) } noexcept;             // the world begins the operation with this sequence number
      { l.note_end(tag, tag) } noexcept;          // the world has ended here: the number and hash of its calls
      { l.note_call(call, in_flight) } noexcept;  // a group begins this call; in_flight(tag): one has not ended
      { l.ask(work, tag) } noexcept;              // asks the peer that it waits for whether it has called the same
      { l.leave() } noexcept;                     // says goodbye; takes a bounded time
      { l.prepare_park() } noexcept;              // see progress_source; park() and unpark() need no lock
      { l.park(d) } noexcept;
      { l.finish_park() } noexcept;
      { l.unpark() } noexcept;
    };

class condition;

/// Transport whose ranks can load and store each other's memory, all of them or those of one node.
template <class L>
concept mapped_transport =
    transport<L> && requires(L& l, int peer, std::size_t bytes, const void* p, std::uint64_t where, condition& c,
                             std::byte* mine, call_log::source& w) {
      { l.maps(peer) } noexcept -> std::same_as<bool>;    // this rank maps the peer's heap
      { l.allocate(bytes) } -> std::same_as<std::byte*>;  // zeroed memory of this rank that peers can map; throws error
      { l.deallocate(mine) } noexcept;
      { l.locate(p, bytes) } noexcept -> std::same_as<std::optional<std::uint64_t>>;  // its offset in the heap, if any
      { l.resolve(peer, where, bytes) } noexcept -> std::same_as<std::byte*>;         // the address of that offset here
      { l.process_of(peer) } noexcept -> std::same_as<int>;  // the pid, for copies by the kernel; 0: none possible
      { l.watch(c) } noexcept;                               // polls the condition until it holds
      { l.gone(peer) } noexcept -> std::same_as<bool>;       // its process has ended and accesses no memory any more
      { l.ring(peer) } noexcept;   // after a store to shared memory: wakes the peer if it sleeps
      { l.ask_also(w) } noexcept;  // looks up unlogged calls in `w` until forget(w)
      { l.forget(w) } noexcept;
    };

class shm_registrations;

/// Link whose ranks can map memory of the caller's, once it has been registered. registrations() returns null where no
/// rank shares memory with this one.
template <class L>
concept registering_transport = mapped_transport<L> && requires(L& l) {
  { l.registrations() } noexcept -> std::same_as<shm_registrations*>;
};

}  // namespace tutti
