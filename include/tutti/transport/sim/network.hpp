#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/sim/options.hpp>
#include <tutti/transport/sim/schedule.hpp>
#include <tutti/transport/sim/stream.hpp>

namespace tutti {

/// Common state of the ranks of a simulated world: the streams between them, the first cause of failure and the ranks
/// that know it, the ranks that have left, memory, and injected faults. It is used by one thread; only report() may
/// come from others.
class sim_network {
 public:
  sim_network(int size, const sim_options& how)
      : options_(check(size, how)),
        schedule_(size, how.seed),
        any_memory_(schedule_.random().one_in(2)),
        slowness_(schedule_.random().one_of({0, 5, 100})),
        ranks_(static_cast<std::size_t>(size)) {
    const std::uint64_t rough = schedule_.random().one_of({0, 1, 2, 8});
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) streams_.emplace_back(schedule_, from, to, rough);
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const sim_options& options() const noexcept { return options_; }
  [[nodiscard]] sim_schedule& schedule() noexcept { return schedule_; }
  [[nodiscard]] sim_stream& stream(int from, int to) noexcept {
    return streams_[static_cast<std::size_t>(from * size() + to)];
  }

  /// Runs the fibers that were started in the schedule until all ranks have ended. Returns false if some cannot be
  /// ended.
  bool run() {
    const bool done = schedule_.run([this] { faults(); }, [this] { return hangs(); });
    if (cause_.ok()) cause_ = {errc::aborted, 0, -1, 0};  // for communicators that outlive the run
    for (rank_state& r : ranks_) r.hears = 0;
    if (options_.record)
      *options_.record = {options_.seed, schedule_.steps(), schedule_.trace(), lost_at_, schedule_.missed_wakes()};
    return done;
  }
  /// Returns the rank that was lost; -1 if there is none.
  [[nodiscard]] int lost() const noexcept { return lost_; }

  /// Ends the world; the first cause stays. Rank `by` knows at once, the others after a while.
  void fail(status why, int by = -1) noexcept {
    if (!cause_.ok()) return;
    cause_ = why;
    schedule_.note(3, static_cast<std::uint64_t>(why.code) << 16 | static_cast<std::uint16_t>(why.peer));
    for (int r = 0; r < size(); ++r) {
      at(r).hears = r == by ? schedule_.now() : schedule_.now() + schedule_.random().below(slowness_ + 1);
      schedule_.wake_at(at(r).hears, r);
    }
  }
  /// Does what fail() does, from a thread that is not part of the simulation.
  void report(status why) noexcept {
    std::uint64_t none = 0;
    reported_.compare_exchange_strong(
        none, static_cast<std::uint64_t>(why.code) << 32 | static_cast<std::uint32_t>(why.peer));
  }
  /// Returns the cause of failure if this rank knows it by now; else errc::ok.
  [[nodiscard]] status heard(int rank) const noexcept {
    return cause_.ok() || schedule_.now() < at(rank).hears ? status{} : cause_;
  }
  [[nodiscard]] status cause() const noexcept { return cause_; }

  /// Says goodbye for a rank, behind all that it has written.
  void leave(int rank) noexcept {
    if (std::exchange(at(rank).left, true)) return;
    at(rank).awaits = nullptr;
    for (int r = 0; r < size(); ++r) schedule_.wake_at((std::max)(schedule_.now(), stream(rank, r).last_arrival()), r);
  }
  [[nodiscard]] bool has_left(int peer, int rank) noexcept { return at(peer).left && stream(peer, rank).drained(); }

  void note_issue(int rank, std::uint64_t sequence) noexcept { at(rank).issued = sequence; }
  [[nodiscard]] std::uint64_t issued(int rank) const noexcept { return at(rank).issued; }
  /// Sets the function that returns the rank for which this rank waits; -1: none. It is called while others run.
  void watch(int rank, std::function<int()> awaits) { at(rank).awaits = std::move(awaits); }

  /// Returns zeroed memory, aligned to 4096 bytes. It stays until it is freed or the network ends, because a peer may
  /// read what a rank left behind. Throws error{out_of_resources}.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    constexpr std::size_t alignment = 4096;
    block fresh{static_cast<std::byte*>(std::calloc(1, bytes + alignment))};
    if (!fresh) throw error{{errc::out_of_resources}, "no memory for " + std::to_string(bytes) + " bytes"};
    const auto start = (reinterpret_cast<std::uintptr_t>(fresh.get()) + alignment - 1) / alignment * alignment;
    blocks_.emplace(start, allocation{std::move(fresh), std::max<std::size_t>(bytes, 1)});
    return reinterpret_cast<std::byte*>(start);
  }
  void deallocate(std::byte* p) noexcept { blocks_.erase(reinterpret_cast<std::uintptr_t>(p)); }
  /// Returns true if all ranks map this memory. In some worlds that is all memory, as between threads, in others only
  /// what allocate() returned.
  [[nodiscard]] bool maps(std::uintptr_t p, std::size_t bytes) const noexcept {
    if (any_memory_) return true;
    auto found = blocks_.upper_bound(p);
    if (found == blocks_.begin()) return false;
    --found;
    return p - found->first <= found->second.bytes && bytes <= found->second.bytes - (p - found->first);
  }

 private:
  struct release {
    void operator()(std::byte* p) const noexcept { std::free(p); }
  };
  using block = std::unique_ptr<std::byte, release>;
  struct allocation {
    block memory;
    std::size_t bytes;
  };
  struct rank_state {
    bool left = false;
    std::uint64_t issued = 0, hears = 0;
    std::function<int()> awaits;
  };

  static const sim_options& check(int size, const sim_options& how) {
    if (size < 1) throw usage_error("a world of " + std::to_string(size) + " ranks: at least 1 is needed");
    if (size > 256) throw usage_error("a simulated world has at most 256 ranks");
    if (how.lose_rank >= size)
      throw usage_error("rank " + std::to_string(how.lose_rank) + " cannot be lost from a world of " +
                        std::to_string(size));
    return how;
  }
  [[nodiscard]] rank_state& at(int rank) noexcept { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const rank_state& at(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)]; }

  void faults() noexcept {
    if (const std::uint64_t r = reported_.load(std::memory_order_acquire); r != 0 && cause_.ok())
      fail({static_cast<errc>(r >> 32), 0, static_cast<std::int32_t>(r & 0xffffffffu), 0});
    const int victim = options_.lose_rank;
    if (victim >= 0 && lost_ < 0 && schedule_.steps() + 1 >= options_.lose_at_step && !schedule_.ended(victim)) {
      lost_ = victim;
      lost_at_ = schedule_.steps() + 1;
      schedule_.stop(victim);
      schedule_.note(4, static_cast<std::uint64_t>(victim));
      if (options_.how == sim_loss::killed) {
        notice_ = schedule_.now() + schedule_.random().below(schedule_.random().one_of({1, 20, 400}));
        schedule_.wake_at(*notice_, -1);
      }
    }
    if (notice_ && schedule_.now() >= *notice_) {
      notice_.reset();
      fail({errc::peer_lost, 0, lost_, 0});
    }
    if (lost_ >= 0 && schedule_.stopped(lost_) && others_ended()) {
      // No other rank can be hurt any more. The failure of what the lost rank waits for unwinds its stack.
      if (cause_.ok()) cause_ = {errc::aborted, 0, -1, 0};
      at(lost_).hears = 0;
      schedule_.go_on(lost_);
    }
  }
  [[nodiscard]] bool others_ended() const noexcept {
    for (int r = 0; r < size(); ++r)
      if (r != lost_ && !schedule_.ended(r)) return false;
    return true;
  }

  bool hangs() noexcept {
    if (!cause_.ok()) return false;
    fail({errc::timed_out, 0, straggler(), 0});
    return true;
  }

  /// Returns the rank that a hang is due to: one that was stopped; otherwise the end of the chain of ranks that wait
  /// for each other; in a circle, the rank that has begun the fewest operations.
  [[nodiscard]] int straggler() const noexcept {
    if (lost_ >= 0) return lost_;
    int who = 0;
    while (schedule_.ended(who)) ++who;
    std::vector<int> chain;
    while (std::find(chain.begin(), chain.end(), who) == chain.end()) {
      chain.push_back(who);
      const int next = at(who).awaits ? at(who).awaits() : -1;
      if (next < 0) return who;
      who = next;
    }
    chain.erase(chain.begin(), std::find(chain.begin(), chain.end(), who));
    return *std::min_element(chain.begin(), chain.end(),
                             [&](int a, int b) { return std::pair{at(a).issued, a} < std::pair{at(b).issued, b}; });
  }

  sim_options options_;
  sim_schedule schedule_;
  bool any_memory_;
  std::uint64_t slowness_;
  std::vector<rank_state> ranks_;
  std::deque<sim_stream> streams_;
  status cause_{};
  std::atomic<std::uint64_t> reported_{0};
  int lost_ = -1;
  std::uint64_t lost_at_ = 0;
  std::optional<std::uint64_t> notice_;
  std::map<std::uintptr_t, allocation> blocks_;
};

}  // namespace tutti
