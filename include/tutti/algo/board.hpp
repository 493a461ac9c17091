#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <tutti/algo/board_memory.hpp>
#include <tutti/algo/called.hpp>
#include <tutti/algo/choice_timer.hpp>
#include <tutti/algo/fingerprint.hpp>
#include <tutti/algo/ring.hpp>
#include <tutti/algo/turnstile.hpp>
#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/kernels/copy.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/lane.hpp>
#include <tutti/transport/link_core.hpp>
#include <tutti/transport/odd_message.hpp>
#include <tutti/transport/recent_calls.hpp>
#include <tutti/transport/tag.hpp>

namespace tutti::algo {

/// Where the ranks of one group meet in mapped memory: for each rank four cells in which it posts its steps, in turn,
/// and two slots to stage data. A cell is a pair of lines of the cache: the step, the call that it belongs to, and what
/// fits beside them.
///
/// The rule that makes two slots enough: what a rank publishes with post(t) lies in its slot t % 2; a rank has read
/// what it needs of step t before it posts t + 1. So a slot may be written for step t once everyone has posted t - 1.
/// Operations of a group take turns on its board, in the order of their issue, which is the same on all ranks.
class board : public board_memory, public turnstile, public recent_calls::witness {
 public:
  static constexpr std::size_t slot_bytes = std::size_t{256} << 10;
  static constexpr std::size_t half_bytes = slot_bytes / 2;
  /// How much is done in memory of others between two looks whether one is still welcome: each piece begins slowly.
  static constexpr std::size_t visit_bytes = slot_bytes;
  static constexpr std::size_t worth_walking = std::size_t{3} << 10;
  static constexpr std::size_t worth_streaming = choice_timer::worth_counting;
  static constexpr std::uint64_t nowhere = std::numeric_limits<std::uint64_t>::max();

  /// What a rank tells beside its step: where its buffers are, if peers can map them, and the bytes of the longest
  /// block in its slot, where they do not know.
  struct note {
    std::uint64_t in, out;
    std::uint64_t longest = 0;
  };
  static constexpr std::size_t part_bytes = slots_at + 2 * slot_bytes;

  /// How data is staged: how many bytes short messages walk through before they come back, of each of the two slots (a
  /// power of two), and by which stores.
  struct staging {
    std::size_t walk = slot_bytes;
    stores how = stores::ordinary;
    friend bool operator==(const staging&, const staging&) = default;
  };
  static constexpr std::size_t long_walk = std::size_t{2} << 20;
  static constexpr std::size_t long_bytes = slots_at + 2 * long_walk;

  /// Waits until the ranks from `first` up to `last` have posted the step that this rank posted last, and fails with
  /// errc::mismatch when one of them posted it in another call.
  ///
  /// Why that is never a false alarm: step t is posted by whom step t - 1 has ended for, and thus after somebody has
  /// seen everyone at t - 2; where all but the root wait for the root alone, it was the root. So while this rank is at
  /// step t, nobody is beyond t + 2, and the cells of four steps are kept.
  class reached final : public condition {
   public:
    /// `expected` bytes of the slots will be read then: their first lines are asked for while waiting, so that they
    /// arrive together with the step.
    template <class Link>
    reached(board& b, Link& link, int first, int last, std::uint64_t step, std::size_t expected = 0) noexcept
        : board_(b), step_(step), expected_(expected <= worth_asking ? expected : 0), next_(first), end_(last) {
      link.watch(*this);
    }
    bool holds() noexcept override {
      for (; next_ < end_; ++next_) {
        std::uint64_t& seen = board_.seen_[static_cast<std::size_t>(next_)];
        if (seen >= step_) continue;  // and found alike: the line may be on its way back to its rank by now
        const cell& c = board_.at(next_, step_);
        tutti::detail::prefetch(c.data, cell_bytes);
        if (expected_ != 0 && asks_left_ != 0 && asks_left_-- != 0)
          tutti::detail::prefetch(board_.slot(next_, step_, expected_), std::min(expected_, most_ahead));
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
    // Of a long message the writer would lose lines that it has not written yet.
    static constexpr std::size_t worth_asking = std::size_t{64} << 10, most_ahead = 4096;

    board& board_;
    std::uint64_t step_;
    std::size_t expected_;
    int asks_left_ = 6;  // who comes much later would lose its lines again and again
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

  [[nodiscard]] bool is_open() const noexcept { return !lines_.empty(); }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  /// Where `rank` stages so many bytes for a step. Messages beyond a few lines walk through the slot: stores into lines
  /// that nobody has read for a while are cheaper. Shorter ones find those of one place in all caches.
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t step, std::size_t bytes = slot_bytes) const noexcept {
    const std::size_t within = bytes < worth_walking ? 0 : step / 2 * std::bit_ceil(bytes) & (staging_.walk - 1);
    return slots_[static_cast<std::size_t>(rank)] + step % 2 * staging_.walk + within;
  }
  /// Copies into a slot, in the way in use.
  void stage(std::byte* to, const void* from, std::size_t bytes) noexcept {
    if (staging_.how == stores::streaming && bytes >= worth_streaming)
      copy_streaming(to, from, bytes);
    else
      copy_bytes(to, from, bytes);
  }
  /// What fits beside the step: `cell_bytes` of the own cell to write before post(), of the others' to read afterwards.
  [[nodiscard]] std::byte* beside(int rank, std::uint64_t step) const noexcept { return at(rank, step).data; }
  [[nodiscard]] note note_of(int rank, std::uint64_t step) const noexcept {
    note n;
    std::memcpy(&n, beside(rank, step), sizeof n);
    return n;
  }

  /// The call that the next steps are posted in. Calls are chained: ranks that differed once, where nobody had to look,
  /// differ from then on.
  void begin(const called& c) noexcept {
    call_ = detail::mix(call_, c.fingerprint());
    remember(c);
  }
  /// A call that goes by messages, for the words about ranks that differ.
  void remember(called c, algorithm via) noexcept {
    c.via = via;
    if (is_open()) remember(c);
  }
  /// One of the calls that `rank` began last, all of which stay for as long as anybody may wait for their steps;
  /// nothing when there were fewer, or when it is just being written.
  [[nodiscard]] called recent(int rank, std::size_t i) const noexcept {
    const auto& from = at(rank).calls[i % remembered].words;
    called::packed p;
    for (std::size_t w = 0; w < 4; ++w) p.words[w] = from[w].load(std::memory_order_acquire);
    return from[0].load(std::memory_order_relaxed) == p.words[0] ? called::unpack(p) : called{};
  }

  /// The same of this rank, for others that wait for it in another operation of that number. What went by messages was
  /// noted.
  [[nodiscard]] recent_calls::one recall(std::uint64_t t) const noexcept override {
    for (std::size_t i = 0; is_open() && i < remembered; ++i) {
      const called c = recent(rank_, i);
      if (c.sequence == 0 || !tag::of_one_operation(tag::make(members_->context, c.sequence, 0), t)) continue;
      if (c.via != algorithm::automatic || c.what == collective::broadcast_sized) continue;
      return noted(members_->context, c, c.what == collective::barrier ? algorithm::automatic : algorithm::direct);
    }
    return {};
  }

  /// True where a call need not wait before it posts: none is before it, and everyone is seen at the last step.
  [[nodiscard]] bool is_clear(int looks) noexcept {
    return is_open() && is_free() && (all_seen_ == step_ || sees(0, members_->size, looks));
  }
  /// Looks at most so many times whether the ranks from `first` up to `last` have posted the step that this rank posted
  /// last, in the same call.
  [[nodiscard]] bool sees(int first, int last, int looks) noexcept {
    for (int r = first; r < last; ++r) {
      std::uint64_t& seen = seen_[static_cast<std::size_t>(r)];
      for (const cell& c = at(r, step_); seen < step_;) {
        tutti::detail::prefetch(c.data, cell_bytes);
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

  /// Publishes this rank's slot of the next step; returns its number.
  template <class Link>
  std::uint64_t post(Link& link) noexcept {
    cell& mine = at(rank_, step_ + 1);
    posted_ = call_;
    mine.call.store(call_, std::memory_order_relaxed);
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

  [[nodiscard]] choice_timer& timer() noexcept { return timer_; }
  /// Whether to choose the way to stage before a message of so many bytes, or after one whose length was news.
  [[nodiscard]] bool choice_due(std::size_t bytes) noexcept { return timer_.due(bytes); }
  /// From the next step on, on all ranks alike.
  void use(const staging& s) noexcept {
    for (std::size_t r = 0; r < parts_.size(); ++r)
      slots_[r] = s.walk == slot_bytes ? parts_[r] + slots_at : long_parts_[r] + slots_at;
    staging_ = s;
  }
  [[nodiscard]] const staging& way() const noexcept { return staging_; }
  /// Where a piece of a message lies in a slot, as a number of bytes for slot(). Pieces of long blocks that all ranks
  /// stage keep to two places: more room would push the blocks out of a cache that the cores share.
  [[nodiscard]] std::size_t place_for(std::size_t piece, std::size_t block) const noexcept {
    return block < std::size_t{1} << 20 ? piece : std::max(piece, staging_.walk / 2);
  }
  /// From how many bytes on ranks lend others what these are to copy: measured with blocks that everyone copies from
  /// everyone; a root's buffer is compared with it as a whole, which is near enough.
  void lend_from(std::uint64_t bytes) noexcept { lends_from_ = bytes; }
  [[nodiscard]] std::uint64_t lends_from() const noexcept { return lends_from_; }
  /// Makes sure that this rank has room for long walks; false when there is no memory for it.
  template <class Link>
  bool make_long(Link& link) noexcept {
    try {
      if (!long_) long_ = link.allocate(long_bytes);
      return true;
    } catch (...) {
      return false;
    }
  }
  template <class Link>
  [[nodiscard]] std::uint64_t long_place(Link& link) const noexcept {
    return *link.locate(long_, long_bytes);
  }
  /// Maps the room that all have noted with `step`; returns the world rank whose place cannot be, -1 if all can.
  template <class Link>
  int find_long(Link& link, std::uint64_t step) noexcept {
    for (int r = 0; r < members_->size; ++r) {
      const int who = members_->world_rank(r);
      std::byte* p = link.resolve(who, note_of(r, step).in, long_bytes);
      if (!p) return who;
      long_parts_[static_cast<std::size_t>(r)] = p;
    }
    return -1;
  }

  /// Says farewell to the others; the last that this rank does in their memory. All its operations have ended.
  remains end() noexcept {
    if (!is_open()) return {};
    for (int r = 0; r < members_->size; ++r)
      if (r != rank_) at(r).farewells.fetch_add(1, std::memory_order_release);
    return {parts_[static_cast<std::size_t>(rank_)], long_, &at(rank_).farewells,
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
      parts_.push_back(at);
    }
    for (std::byte* p : parts_) slots_.push_back(p + slots_at);
    long_parts_.resize(parts_.size());
    seen_.resize(parts_.size());
    lists_.operands.reserve(parts_.size());
    lists_.in.reserve(parts_.size());
    rank_ = lane.rank();
    members_ = &lane.members();
    lines_.reserve(parts_.size());  // from here on it is open
    for (std::byte* p : parts_) lines_.push_back(reinterpret_cast<line*>(p));
  }

 private:
  void remember(const called& c) noexcept {
    auto& to = at(rank_).calls[begun_++ % remembered].words;
    const auto from = c.pack();
    to[0].store(0, std::memory_order_relaxed);  // nothing, for whoever reads in between
    to[3].store(from.words[3], std::memory_order_release);
    to[2].store(from.words[2], std::memory_order_release);
    to[1].store(from.words[1], std::memory_order_release);
    to[0].store(from.words[0], std::memory_order_release);
  }
  [[nodiscard]] line& at(int rank) const noexcept { return *lines_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] cell& at(int rank, std::uint64_t step) const noexcept { return at(rank).cells[step % 4]; }

  /// The failure of a rank that has found `rank` at a step of another call: their first calls that differ, if these are
  /// remembered.
  [[nodiscard]] status difference(int rank) const noexcept {
    called mine{}, theirs{};
    for (std::size_t i = 0; i < remembered * remembered; ++i) {
      const called m = recent(rank_, i / remembered), t = recent(rank, i % remembered);
      if (m.sequence == 0 || m.sequence != t.sequence || m == t) continue;
      if (mine.sequence == 0 || m.sequence < mine.sequence) mine = m, theirs = t;
    }
    odd_message found{theirs.brief(), mine.brief(), theirs.count, mine.count, members_->context, mine.sequence};
    found.of = odd_message::unit::elements;
    status why = found.failure(members_->world_rank(rank), members_->world_rank(rank_));
    if (mine.sequence == 0) why.detail = 0;
    return why;
  }

  template <class Link>
  void retract(Link& link) noexcept {
    at(rank_).retracted.store(1);  // sequentially consistent, as visiting: one side sees the other
    const deadline limit = after(std::chrono::seconds(10));
    for (int r = 0; r < members_->size; ++r)
      while (r != rank_ && at(r).visiting.load() != 0 && !link.gone(members_->world_rank(r)) && clock::now() < limit)
        std::this_thread::yield();
  }

  std::vector<std::byte*> parts_;
  std::vector<line*> lines_;
  std::vector<std::byte*> slots_, long_parts_;
  std::byte* long_ = nullptr;
  staging staging_{};
  std::uint64_t lends_from_ = nowhere;
  choice_timer timer_;
  std::vector<std::uint64_t> seen_;  // the highest step of each rank that was found posted, in this call
  lists lists_;
  const group* members_ = nullptr;
  int rank_ = 0;
  std::uint64_t step_ = 0, all_seen_ = 0;
  std::uint64_t call_ = 0, posted_ = 0;  // the call that has its turn, and the one that posted last
  std::size_t begun_ = 0;
};

}  // namespace tutti::algo
