#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <tutti/algo/message/ring.hpp>
#include <tutti/algo/mismatch/call_history.hpp>
#include <tutti/algo/shm/group/memory.hpp>
#include <tutti/algo/shm/group/retune_schedule.hpp>
#include <tutti/algo/shm/group/slots.hpp>
#include <tutti/algo/shm/group/ticket_lock.hpp>
#include <tutti/config.hpp>
#include <tutti/core/check.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/transport/messaging/link_core.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace tutti::algo {

/// Flags and staging slots through which the ranks of one group meet in shared memory. Each rank has four flags, which
/// it uses in turn to post its steps, and two slots. A flag is two cache lines: the step, the call that the step
/// belongs to, and an inline payload.
///
/// Two slots are enough by this rule: the data that a rank publishes with post(t) lies in its slot t % 2, and a rank
/// has read everything that it needs of step t before it posts t + 1. A rank may therefore write its slot for step t
/// once every rank has posted t - 1. Operations of a group use the shm group one after another, in order of issue,
/// which is the same on all ranks.
class shm_group : public ticket_lock, public call_history, public shm_slots {
 public:
  /// Bytes that a rank accesses in other ranks' buffers between two checks for revocation. A chunk this long is worth
  /// the slow start of each copy.
  static constexpr std::size_t access_bytes = slot_bytes;
  static constexpr std::uint64_t no_offset = (std::numeric_limits<std::uint64_t>::max)();

  /// Buffer descriptor that a rank publishes with a step: the offsets of its buffers in its heap, `no_offset` for
  /// buffers that peers cannot map, and the bytes of the longest block in its slot if peers cannot compute them.
  struct buffer_descriptor {
    std::uint64_t in, out;
    std::uint64_t longest = 0;
  };

  /// Prefetch of another rank's slot; `bytes` bytes of it will be read. The first `times` polls for a step also fetch
  /// the beginning of the slot, so that flag and data arrive together.
  struct slot_prefetch {
    std::size_t bytes = 0;
    int times = 6;  // a rank that is much later would lose its lines again and again
  };

  /// Condition that ranks `first` to `last` - 1 have posted the step that this rank posted last. It fails with
  /// errc::mismatch if one of them posted that step in another call.
  ///
  /// Four flags per rank suffice: a rank posts step t only after completing step t - 1, for which some rank has seen
  /// all ranks at t - 2 (the root, if all others wait for the root alone). While this rank is at step t, no rank can
  /// therefore be past t + 2, and no flag that is still awaited has been reused.
  class posted_by final : public condition {
   public:
    /// Starts the wait. `expected` is the number of bytes of each slot that will be read afterwards, for prefetching.
    template <class Link>
    posted_by(shm_group& shm, Link& link, int first, int last, std::uint64_t step, std::size_t expected = 0) noexcept
        : group_(shm), step_(step), ahead_{expected}, next_(first), end_(last) {
      link.watch(*this);
    }
    bool holds() noexcept override {
      for (; next_ < end_; ++next_) {
        std::uint64_t& seen = group_.seen_[static_cast<std::size_t>(next_)];
        if (seen >= step_) continue;  // its call was compared then; the line may be on its way back to its rank by now
        const flag& c = group_.at(next_, step_);
        tutti::detail::prefetch(c.data, payload_bytes);
        group_.prefetch_slot(next_, step_, ahead_);
        if (c.step.load(std::memory_order_acquire) < step_) return false;
        differs_ = c.call.load(std::memory_order_relaxed) != group_.posted_;
        if (differs_) return true;
        seen = step_;
      }
      return true;
    }
    status verdict() const noexcept override { return differs_ ? group_.difference(next_) : status{}; }
    int waiting_for() const noexcept override { return group_.members_->world_rank(next_); }

   private:
    shm_group& group_;
    std::uint64_t step_;
    slot_prefetch ahead_;
    int next_, end_;
    bool differs_ = false;
  };

  /// Exposure epoch: other ranks may access the buffers that this rank describes, from construction until close(). If
  /// the operation fails first, the destructor revokes the access: no rank begins another one, and the destructor waits
  /// until each rank that is at work has finished its 256 KiB or has died. It waits at most 10 s for a rank that is
  /// merely stopped, which may still complete its chunk later.
  template <class Link>
  class exposure_epoch {
   public:
    exposure_epoch(shm_group& shm, Link& link) noexcept : group_(&shm), link_(link) {}
    exposure_epoch(const exposure_epoch&) = delete;
    exposure_epoch& operator=(const exposure_epoch&) = delete;
    ~exposure_epoch() {
      if (group_) group_->revoke(link_);
    }
    void close() noexcept { group_ = nullptr; }

   private:
    shm_group* group_;
    Link& link_;
  };

  /// Access epoch: this rank accesses the others' buffers. The caller must ask permitted() before every `access_bytes`,
  /// and end the access when it returns false.
  class access_epoch {
   public:
    explicit access_epoch(shm_group& shm) noexcept : group_(shm) { group_.at(group_.rank_).accessing.store(1); }
    access_epoch(const access_epoch&) = delete;
    access_epoch& operator=(const access_epoch&) = delete;
    ~access_epoch() { group_.at(group_.rank_).accessing.store(0, std::memory_order_release); }
    [[nodiscard]] bool permitted() const noexcept {
      for (const line* l : group_.lines_)
        if (l->revoked.load() != 0) return false;
      return true;
    }

   private:
    shm_group& group_;
  };

  /// Reusable lists of addresses for the operation that holds the ticket, so that operations do not allocate.
  struct lists {
    std::vector<const void*> operands;
    std::vector<void*> results;
    std::vector<std::byte*> in, out;
  };
  [[nodiscard]] lists& room() noexcept { return lists_; }

  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// Returns this rank's slot of the next step. The caller must have seen all ranks at the current step: see the rule
  /// above.
  [[nodiscard]] std::byte* own_slot(std::size_t bytes) const noexcept {
    TUTTI_ASSERT(std::ranges::all_of(seen_, [this](std::uint64_t seen) { return seen >= step_; }));
    return slot(rank_, step_ + 1, bytes);
  }
  /// Returns the inline payload of a flag, `payload_bytes` long: the own one is written before post(), others' are read
  /// after it.
  [[nodiscard]] std::byte* inline_payload(int rank, std::uint64_t step) const noexcept { return at(rank, step).data; }
  [[nodiscard]] buffer_descriptor descriptor_of(int rank, std::uint64_t step) const noexcept {
    buffer_descriptor n;
    std::memcpy(&n, inline_payload(rank, step), sizeof n);
    return n;
  }

  /// Returns true if a call can post without waiting: no operation is queued, and every rank is seen at the last step
  /// within `spin_limit` polls.
  [[nodiscard]] bool is_clear(int spin_limit) noexcept {
    return is_open() && is_free() && (all_seen_ == step_ || test(0, members_->size, spin_limit));
  }
  /// Polls at most `spin_limit` times whether ranks `first` to `last` - 1 have posted the step that this rank posted
  /// last, in the same call. `expected` is the number of bytes of each slot that will be read, for prefetching.
  [[nodiscard]] bool test(int first, int last, int spin_limit, std::size_t expected = 0) noexcept {
    slot_prefetch ahead{expected};
    for (int r = first; r < last; ++r) {
      std::uint64_t& seen = seen_[static_cast<std::size_t>(r)];
      for (const flag& c = at(r, step_); seen < step_;) {
        tutti::detail::prefetch(c.data, payload_bytes);
        prefetch_slot(r, step_, ahead);
        if (c.step.load(std::memory_order_acquire) >= step_) {
          if (c.call.load(std::memory_order_relaxed) != posted_) return false;
          seen = step_;
        } else if (--spin_limit < 0) {
          return false;
        }
      }
    }
    if (last - first == members_->size) all_seen_ = step_;
    return true;
  }

  /// Prefetches the flags of all other ranks. A call that does not wait for them does so for the next call, which will.
  void prefetch_flags() const noexcept {
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) tutti::detail::prefetch(at(r, step_).data, 1);
  }

  /// Publishes this rank's slot of the next step, wakes the other ranks and returns the number of the step.
  template <class Link>
  std::uint64_t post(Link& link) noexcept {
    flag& mine = at(rank_, step_ + 1);
    posted_ = mark();
    mine.call.store(posted_, std::memory_order_relaxed);
    mine.step.store(++step_, std::memory_order_release);
    seen_[static_cast<std::size_t>(rank_)] = step_;
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) link.ring(members_->world_rank(r));
    return step_;
  }
  /// Does the same with a buffer descriptor. A rank may read it after it has seen that all ranks post this step in the
  /// same call.
  template <class Link>
  std::uint64_t post(Link& link, buffer_descriptor n) noexcept {
    std::memcpy(inline_payload(rank_, step_ + 1), &n, sizeof n);
    return post(link);
  }

  [[nodiscard]] retune_schedule& timer() noexcept { return timer_; }
  [[nodiscard]] const retune_schedule& timer() const noexcept { return timer_; }
  /// Counts a message of `bytes`, and returns true if the group must choose its staging method now: before the message,
  /// or after it if its length was not known before.
  [[nodiscard]] bool choice_due(std::size_t bytes) noexcept { return timer_.due(bytes); }
  /// Message sizes in bytes from which ranks offer a buffer for cross-memory attach: `blocks` where every rank copies
  /// from every other, `whole` for the buffer of a root.
  struct cma_thresholds {
    std::uint64_t blocks = no_offset, whole = no_offset;
    friend bool operator==(const cma_thresholds&, const cma_thresholds&) = default;
  };
  void set_cma(const cma_thresholds& from) noexcept { cma_ = from; }
  [[nodiscard]] const cma_thresholds& cma() const noexcept { return cma_; }
  /// Maps the long slots that all ranks have described with `step`. Returns the world rank whose slots cannot be
  /// mapped, -1 if all can.
  template <class Link>
  int find_long(Link& link, std::uint64_t step) noexcept {
    for (int r = 0; r < members_->size; ++r) {
      const int who = members_->world_rank(r);
      std::byte* room = link.resolve(who, descriptor_of(r, step).in, long_bytes);
      if (!room) return who;
      found_long(r, room);
    }
    return -1;
  }

  /// Tells the other ranks that this rank accesses their memory no more; all its operations must have ended. Returns
  /// the memory to free once all others have done the same.
  retired_memory end() noexcept {
    if (!is_open()) return {};
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) at(r).departures.fetch_add(1, std::memory_order_release);
    return {parts()[static_cast<std::size_t>(rank_)], long_part(), &at(rank_).departures,
            static_cast<std::uint32_t>(members_->size - 1)};
  }

  /// Allocates this rank's flags and slots and exchanges their offsets by messages. Runs once, in the group's first
  /// call in shared memory.
  template <class GroupLink>
  routine open(GroupLink link) {
    auto& endpoint = link.link();
    std::vector<std::uint64_t> places(static_cast<std::size_t>(link.size()));
    std::byte* part = nullptr;
    status failed{};
    try {
      part = endpoint.allocate(part_bytes);
    } catch (const error& e) {
      failed = e.cause();
    } catch (const std::bad_alloc&) {
      failed = {errc::out_of_resources};
    }
    if (!failed.ok()) co_await link.refuse(failed);
    const auto r = static_cast<std::size_t>(link.rank());
    places[r] = *endpoint.locate(part, part_bytes);
    co_await detail::ring_gather(link, &places[r], places.data(), sizeof places[r],
                                 blocks{places.size(), places.size()}, tag::preparing);
    for (std::size_t p = 0; p < places.size(); ++p) {
      std::byte* at = endpoint.resolve(link.members().world_rank(static_cast<int>(p)), places[p], part_bytes);
      if (!at) co_await link.refuse({errc::protocol, 0, link.members().world_rank(static_cast<int>(p)), 0});
      add_part(at);
    }
    seen_.resize(places.size());
    lists_.operands.reserve(places.size());
    lists_.in.reserve(places.size());
    rank_ = link.rank();
    members_ = &link.members();
    lines_.reserve(places.size());  // is_open() is true from here on
    for (std::byte* p : parts()) lines_.push_back(reinterpret_cast<line*>(p));
  }

 private:
  using call_history::at;
  [[nodiscard]] flag& at(int rank, std::uint64_t step) const noexcept { return at(rank).flags[step % 4]; }

  void prefetch_slot(int r, std::uint64_t step, slot_prefetch& ahead) const noexcept {
    // Prefetching a long message would take lines from the writer before it has written them.
    constexpr std::size_t worth_asking = std::size_t{64} << 10, most = 4096;
    if (ahead.bytes == 0 || ahead.bytes > worth_asking || ahead.times == 0) return;
    --ahead.times;
    tutti::detail::prefetch(slot(r, step, ahead.bytes), (std::min)(ahead.bytes, most));
  }

  template <class Link>
  void revoke(Link& link) noexcept {
    at(rank_).revoked.store(1);  // sequentially consistent, as `accessing` is: one of the two sides sees the other
    const deadline limit = after(std::chrono::seconds(10));
    for (int r = 0; r < members_->size; ++r)
      while (r != rank_ && at(r).accessing.load() != 0 && !link.gone(members_->world_rank(r)) && clock::now() < limit)
        std::this_thread::yield();
  }

  cma_thresholds cma_;
  retune_schedule timer_;
  std::vector<std::uint64_t> seen_;  // highest step that each rank was seen at, with its call compared
  lists lists_;
  std::uint64_t step_ = 0, all_seen_ = 0;
  std::uint64_t posted_ = 0;  // mark of the call that posted last
};

}  // namespace tutti::algo
