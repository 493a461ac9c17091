#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/beacon.hpp>
#include <tutti/os/event_fd.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/shm_segment.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/shm/control_block.hpp>
#include <tutti/transport/shm/layout.hpp>

namespace tutti {

namespace detail {

/// Returns "rank 3 (host b, pid 712) and rank 5 (host b, pid 714)", with four ranks at most.
inline std::string describe_some(const roster& ranks, const std::vector<int>& which) {
  constexpr std::size_t most = 4;
  const std::size_t named = (std::min)(which.size(), most);
  std::string text;
  for (std::size_t i = 0; i < named; ++i) {
    if (i != 0) text += i + 1 == which.size() ? " and " : ", ";
    text += describe(ranks[static_cast<std::size_t>(which[i])]);
  }
  return named < which.size() ? text + " and " + std::to_string(which.size() - named) + " more" : text;
}

/// Returns "peer lost, rank 3 (host b, pid 712)".
inline std::string describe_cause(const roster& ranks, status why) {
  std::string text = make_error_code(why.code).message();
  for (const rank_info& p : ranks)
    if (p.rank == why.peer) text += ", " + describe(p);
  return text;
}

inline std::string format_duration(duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(d).count()) + " ms";
}

}  // namespace detail

/// Attachment of a rank to the shared memory of its node: the mapping, the descriptor with which it reserves pages, and
/// the beacon that shows the others that it is alive. shm_export::hand_out() and shm_import() make it, and a transport
/// takes it. Ranks are local ranks. Move-only; its destructor says goodbye.
class shm_attachment {
 public:
  /// Maps the segment. `machine` lists the ranks of this node by local rank. Throws error.
  shm_attachment(os::shm_segment segment, const shm_layout& layout, roster machine, int local_rank)
      : segment_(std::move(segment)),
        layout_(layout),
        machine_(std::move(machine)),
        local_rank_(local_rank),
        memory_(
            std::make_shared<os::shm_mapping>(map(segment_, layout_, machine_[static_cast<std::size_t>(local_rank)]))) {
    // A core file would otherwise try to hold the whole address space of the heaps.
    ::madvise(heap(0), layout_.bytes() - layout_.area_bytes, MADV_DONTDUMP);
  }

  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] int local_size() const noexcept { return layout_.ranks; }
  [[nodiscard]] const roster& machine() const noexcept { return machine_; }
  [[nodiscard]] const shm_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] shm_control_block area() const noexcept { return {memory_->data(), layout_.ranks}; }
  [[nodiscard]] std::byte* heap(int rank) const noexcept { return memory_->data() + layout_.heap_offset(rank); }
  [[nodiscard]] os::shm_segment& segment() noexcept { return segment_; }
  [[nodiscard]] const os::shm_segment& segment() const noexcept { return segment_; }

  /// Returns one eventfd per local rank if the world sleeps on descriptors, else none. The transport takes them, once.
  [[nodiscard]] std::vector<os::event_fd> take_bells() noexcept { return std::exchange(bells_, {}); }
  void keep_bells(std::vector<os::event_fd> bells) noexcept { bells_ = std::move(bells); }

  /// Registers this rank with the others, and lights its beacon. Call it in the thread that lives longest (see
  /// os::beacon_owner). Throws error.
  void register_rank() {
    shm_control_block::rank_block& mine = area().block(local_rank_);
    beacon_ = os::beacon_owner{std::shared_ptr<os::beacon_word>{memory_, &mine.beacon}};
    const rank_info& me = machine_[static_cast<std::size_t>(local_rank_)];
    mine.start_time.store(me.start_time, std::memory_order_relaxed);
    mine.pid.store(me.pid, std::memory_order_release);
  }

  /// Waits until every local rank has registered. Calls `look()` now and then, which may throw. Throws error{peer_lost}
  /// or {peer_left} as soon as a rank is gone, and error{rendezvous} at the deadline, which names the missing ranks;
  /// the other ranks then fail with the same cause.
  void await_everyone(deadline until) {
    await_everyone(until, [] {});
  }
  template <class Look>
  void await_everyone(deadline until, Look look) {
    const auto began = clock::now();
    duration pause = std::chrono::microseconds{50};
    for (deadline look_around = began; !absent().empty();) {
      const auto now = clock::now();
      if (now >= look_around) {
        look_around = now + std::chrono::milliseconds{5};
        look();
        expect_life();
      }
      if (now >= until) {
        if (const auto who = absent(); !who.empty())
          give_up(errc::rendezvous, who.front(),
                  detail::describe_some(machine_, who) +
                      " did not sign in to the shared memory of this machine within " +
                      detail::format_duration(now - began) + "; stopped, or out of memory?");
      }
      std::this_thread::sleep_for(std::min<duration>(pause, remaining(until)));
      pause = std::min<duration>(2 * pause, std::chrono::milliseconds{1});
    }
  }

  /// Throws error if a rank of this node has failed, or is gone before every rank has registered.
  void expect_life() const {
    if (const status first = area().failure(); !first.ok() && !absent().empty()) echo(first);
    for (int r = 0; r < local_size(); ++r) {
      const rank_info& p = machine_[static_cast<std::size_t>(r)];
      if (r == local_rank_) continue;
      const auto state = os::probe(area().block(r).beacon, p.pid, p.start_time);
      // Once every rank was here, one may be done and gone before this rank looks: the transport judges that.
      if (state == os::liveness::alive || absent().empty()) continue;
      const bool left = state == os::liveness::left;
      give_up(left ? errc::peer_left : errc::peer_lost, r,
              describe(p) + (left ? " gave up" : " died") + " while this machine set up its shared memory" + see_there);
    }
  }

  /// Ends the set-up of all ranks of this node because of local rank `rank`. Throws the first cause that any of them
  /// has recorded.
  [[noreturn]] void give_up(errc code, int rank, const std::string& message, int errno_value = 0) const {
    const status mine{code, 0, machine_[static_cast<std::size_t>(rank)].rank, static_cast<std::uint64_t>(errno_value)};
    area().fail(mine);
    if (const status first = area().failure(); first != mine) echo(first);
    throw error{mine, message};
  }

  static constexpr const char* see_there = "; its own output says why";

 private:
  static os::shm_mapping map(const os::shm_segment& segment, const shm_layout& layout, const rank_info& me) try {
    return segment.map();
  } catch (const error& e) {
    try {  // the others need not wait for this rank: the small part may still fit
      const os::shm_mapping front = segment.map(0, layout.area_bytes);
      shm_control_block{front.data(), layout.ranks}.fail({e.kind(), 0, me.rank, 0});
    } catch (const error&) {
    }
    throw error{e.cause(), std::string{e.what()} + "; it is mostly address space: raise the limit (ulimit -v)"};
  }

  [[noreturn]] void echo(status first) const {
    throw error{first, "another rank of this machine could not set up shared memory: " +
                           detail::describe_cause(machine_, first) + see_there};
  }

  [[nodiscard]] std::vector<int> absent() const {
    std::vector<int> who;
    for (int r = 0; r < local_size(); ++r)
      if (area().block(r).pid.load(std::memory_order_acquire) != machine_[static_cast<std::size_t>(r)].pid)
        who.push_back(r);
    return who;
  }

  os::shm_segment segment_;
  shm_layout layout_;
  roster machine_;
  int local_rank_ = 0;
  std::shared_ptr<os::shm_mapping> memory_;
  std::vector<os::event_fd> bells_;
  os::beacon_owner beacon_;
};

}  // namespace tutti
