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

#include <tutti/algo/board_memory.hpp>
#include <tutti/algo/board_slots.hpp>
#include <tutti/algo/call_history.hpp>
#include <tutti/algo/choice_timer.hpp>
#include <tutti/algo/claim_choice.hpp>
#include <tutti/algo/ring.hpp>
#include <tutti/algo/turnstile.hpp>
#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>
#include <tutti/transport/link_core.hpp>
#include <tutti/transport/tag.hpp>

namespace tutti::algo {

/// Where the ranks of one group meet in mapped memory: for each rank four cells in which it posts its steps, in turn,
/// and two slots to stage data. A cell is a pair of lines of the cache: the step, the call that it belongs to, and what
/// fits beside them.
///
/// The rule that makes two slots enough: what a rank publishes with post(t) lies in its slot t % 2; a rank has read
/// what it needs of step t before it posts t + 1. So a slot may be written for step t once everyone has posted t - 1.
/// Operations of a group take turns on its board, in the order of their issue, which is the same on all ranks.
class board : public turnstile, public call_history, public board_slots {
 public:
  /// How much is done in memory of others between two looks whether one is still welcome: each piece begins slowly.
  static constexpr std::size_t visit_bytes = slot_bytes;
  static constexpr std::uint64_t nowhere = (std::numeric_limits<std::uint64_t>::max)();

  /// What a rank tells beside its step: where its buffers are, if peers can map them, and the bytes of the longest
  /// block in its slot, where they do not know.
  struct note {
    std::uint64_t in, out;
    std::uint64_t longest = 0;
  };

  /// So many bytes of others' slots will be read: with the first looks for a step their first lines are asked for, so
  /// that they arrive together.
  struct asking {
    std::size_t bytes = 0;
    int times = 6;  // who comes much later would lose its lines again and again
  };

  /// Waits until the ranks from `first` up to `last` have posted the step that this rank posted last, and fails with
  /// errc::mismatch when one of them posted it in another call.
  ///
  /// Why that is never a false alarm: step t is posted by whom step t - 1 has ended for, and thus after somebody has
  /// seen everyone at t - 2; where all but the root wait for the root alone, it was the root. So while this rank is at
  /// step t, nobody is beyond t + 2, and the cells of four steps are kept.
  class reached final : public condition {
   public:
    /// `expected` bytes of the slots will be read then.
    template <class Link>
    reached(board& b, Link& link, int first, int last, std::uint64_t step, std::size_t expected = 0) noexcept
        : board_(b), step_(step), ahead_{expected}, next_(first), end_(last) {
      link.watch(*this);
    }
    bool holds() noexcept override {
      for (; next_ < end_; ++next_) {
        std::uint64_t& seen = board_.seen_[static_cast<std::size_t>(next_)];
        if (seen >= step_) continue;  // and found alike: the line may be on its way back to its rank by now
        const cell& c = board_.at(next_, step_);
        tutti::detail::prefetch(c.data, cell_bytes);
        board_.ask_for(next_, step_, ahead_);
        if (c.step.load(std::memory_order_acquire) < step_) return false;
        differs_ = c.call.load(std::memory_order_relaxed) != board_.posted_;
        if (differs_) return true;
        seen = step_;
      }
      return true;
    }
    status verdict() const noexcept override { return differs_ ? board_.difference(next_) : status{}; }
    int waiting_for() const noexcept override { return board_.members_->world_rank(next_); }

   private:
    board& board_;
    std::uint64_t step_;
    asking ahead_;
    int next_, end_;
    bool differs_ = false;
  };

  /// Buffers that this rank notes are open to the others until close(). If the operation fails before, they are taken
  /// back: nobody else begins, and whoever is at work in them is waited for until it is done with 256 KiB, or dead; for
  /// at most 10 s where it is merely stopped, which may end its piece later.
  template <class Link>
  class exposure {
   public:
    exposure(board& b, Link& link) noexcept : board_(&b), link_(link) {}
    exposure(const exposure&) = delete;
    exposure& operator=(const exposure&) = delete;
    ~exposure() {
      if (board_) board_->retract(link_);
    }
    void close() noexcept { board_ = nullptr; }

   private:
    board* board_;
    Link& link_;
  };

  /// The time in which this rank touches the others' buffers; to be given up when welcome() turns false, which is asked
  /// every `visit_bytes`.
  class visit {
   public:
    explicit visit(board& b) noexcept : board_(b) { board_.at(board_.rank_).visiting.store(1); }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit() { board_.at(board_.rank_).visiting.store(0, std::memory_order_release); }
    [[nodiscard]] bool welcome() const noexcept {
      for (const line* l : board_.lines_)
        if (l->retracted.load() != 0) return false;
      return true;
    }

   private:
    board& board_;
  };

  /// Room for the lists of the operation that has its turn, so that none of them allocates.
  struct lists {
    std::vector<const void*> operands;
    std::vector<void*> results;
    std::vector<std::byte*> in, out;
  };
  [[nodiscard]] lists& room() noexcept { return lists_; }

  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// What fits beside the step: `cell_bytes` of the own cell to write before post(), of the others' to read afterwards.
  [[nodiscard]] std::byte* beside(int rank, std::uint64_t step) const noexcept { return at(rank, step).data; }
  [[nodiscard]] note note_of(int rank, std::uint64_t step) const noexcept {
    note n;
    std::memcpy(&n, beside(rank, step), sizeof n);
    return n;
  }

  /// True where a call need not wait before it posts: none is before it, and everyone is seen at the last step.
  [[nodiscard]] bool is_clear(int looks) noexcept {
    return is_open() && is_free() && (all_seen_ == step_ || sees(0, members_->size, looks));
  }
  /// Looks at most so many times whether the ranks from `first` up to `last` have posted the step that this rank posted
  /// last, in the same call, to read so many bytes of their slots.
  [[nodiscard]] bool sees(int first, int last, int looks, std::size_t expected = 0) noexcept {
    asking ahead{expected};
    for (int r = first; r < last; ++r) {
      std::uint64_t& seen = seen_[static_cast<std::size_t>(r)];
      for (const cell& c = at(r, step_); seen < step_;) {
        tutti::detail::prefetch(c.data, cell_bytes);
        ask_for(r, step_, ahead);
        if (c.step.load(std::memory_order_acquire) >= step_) {
          if (c.call.load(std::memory_order_relaxed) != posted_) return false;
          seen = step_;
        } else if (--looks < 0) {
          return false;
        }
      }
    }
    if (last - first == members_->size) all_seen_ = step_;
    return true;
  }

  /// Asks for what the others have posted, so that who does not wait for them finds it here when its next call does.
  void ask() const noexcept {
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) tutti::detail::prefetch(at(r, step_).data, 1);
  }

  /// Publishes this rank's slot of the next step; returns its number.
  template <class Link>
  std::uint64_t post(Link& link) noexcept {
    cell& mine = at(rank_, step_ + 1);
    posted_ = mark();
    mine.call.store(posted_, std::memory_order_relaxed);
    mine.step.store(++step_, std::memory_order_release);
    seen_[static_cast<std::size_t>(rank_)] = step_;
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) link.ring(members_->world_rank(r));
    return step_;
  }
  /// With a note; to be read by those who have seen that everyone posts this step in the same call.
  template <class Link>
  std::uint64_t post(Link& link, note n) noexcept {
    std::memcpy(beside(rank_, step_ + 1), &n, sizeof n);
    return post(link);
  }

  /// For what this rank folds into the others' buffers.
  [[nodiscard]] claim_choice& claims() noexcept { return claims_; }
  [[nodiscard]] choice_timer& timer() noexcept { return timer_; }
  [[nodiscard]] const choice_timer& timer() const noexcept { return timer_; }
  /// Whether to choose the way to stage before a message of so many bytes, or after one whose length was news.
  [[nodiscard]] bool choice_due(std::size_t bytes) noexcept { return timer_.due(bytes); }
  /// From how many bytes on ranks lend others what these are to copy: blocks that everyone copies from everyone, and
  /// the whole buffer of a root.
  struct lending {
    std::uint64_t blocks = nowhere, whole = nowhere;
    friend bool operator==(const lending&, const lending&) = default;
  };
  void lend(const lending& from) noexcept { lends_ = from; }
  [[nodiscard]] const lending& lends() const noexcept { return lends_; }
  /// Maps the room for long walks that all have noted with `step`; returns the world rank whose place cannot be, -1 if
  /// all can.
  template <class Link>
  int find_long(Link& link, std::uint64_t step) noexcept {
    for (int r = 0; r < members_->size; ++r) {
      const int who = members_->world_rank(r);
      std::byte* room = link.resolve(who, note_of(r, step).in, long_bytes);
      if (!room) return who;
      found_long(r, room);
    }
    return -1;
  }

  /// Says farewell to the others; the last that this rank does in their memory. All its operations have ended.
  remains end() noexcept {
    if (!is_open()) return {};
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) at(r).farewells.fetch_add(1, std::memory_order_release);
    return {parts()[static_cast<std::size_t>(rank_)], long_part(), &at(rank_).farewells,
            static_cast<std::uint32_t>(members_->size - 1)};
  }

  /// Allocates this rank's part and exchanges its place by messages, once, in the first turn.
  template <class Lane>
  routine open(Lane lane) {
    auto& link = lane.link();
    std::vector<std::uint64_t> places(static_cast<std::size_t>(lane.size()));
    std::byte* part = nullptr;
    status failed{};
    try {
      part = link.allocate(part_bytes);
    } catch (const error& e) {
      failed = e.cause();
    } catch (const std::bad_alloc&) {
      failed = {errc::out_of_resources};
    }
    if (!failed.ok()) co_await lane.refuse(failed);
    const auto r = static_cast<std::size_t>(lane.rank());
    places[r] = *link.locate(part, part_bytes);
    co_await detail::ring_gather(lane, &places[r], places.data(), sizeof places[r],
                                 blocks{places.size(), places.size()}, tag::preparing);
    for (std::size_t p = 0; p < places.size(); ++p) {
      std::byte* at = link.resolve(lane.members().world_rank(static_cast<int>(p)), places[p], part_bytes);
      if (!at) co_await lane.refuse({errc::protocol, 0, lane.members().world_rank(static_cast<int>(p)), 0});
      add_part(at);
    }
    seen_.resize(places.size());
    lists_.operands.reserve(places.size());
    lists_.in.reserve(places.size());
    rank_ = lane.rank();
    members_ = &lane.members();
    lines_.reserve(places.size());  // from here on it is open
    for (std::byte* p : parts()) lines_.push_back(reinterpret_cast<line*>(p));
  }

 private:
  using call_history::at;
  [[nodiscard]] cell& at(int rank, std::uint64_t step) const noexcept { return at(rank).cells[step % 4]; }

  void ask_for(int r, std::uint64_t step, asking& ahead) const noexcept {
    // Of a long message the writer would lose lines that it has not written yet.
    constexpr std::size_t worth_asking = std::size_t{64} << 10, most = 4096;
    if (ahead.bytes == 0 || ahead.bytes > worth_asking || ahead.times == 0) return;
    --ahead.times;
    tutti::detail::prefetch(slot(r, step, ahead.bytes), (std::min)(ahead.bytes, most));
  }

  template <class Link>
  void retract(Link& link) noexcept {
    at(rank_).retracted.store(1);  // sequentially consistent, as visiting: one side sees the other
    const deadline limit = after(std::chrono::seconds(10));
    for (int r = 0; r < members_->size; ++r)
      while (r != rank_ && at(r).visiting.load() != 0 && !link.gone(members_->world_rank(r)) && clock::now() < limit)
        std::this_thread::yield();
  }

  lending lends_;
  choice_timer timer_;
  claim_choice claims_;
  std::vector<std::uint64_t> seen_;  // the highest step of each rank that was found posted, in this call
  lists lists_;
  std::uint64_t step_ = 0, all_seen_ = 0;
  std::uint64_t posted_ = 0;  // the mark of the call that posted last
};

}  // namespace tutti::algo
