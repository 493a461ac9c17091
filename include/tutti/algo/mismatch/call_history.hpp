#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/mismatch/log_entry.hpp>
#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/shm/group/memory.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/messaging/call_log.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/transport/messaging/message_mismatch.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace tutti::algo {

/// The last calls of each rank of an shm group, in memory that all ranks read. Steps carry a mark of their call, and
/// when two marks differ, the history tells which calls differ.
class call_history : public shm_group_memory, public call_log::source {
 public:
  /// All calls that were begun here or went by messages, in one number.
  [[nodiscard]] std::uint64_t chain() const noexcept { return detail::mix(call_, by_messages_); }
  [[nodiscard]] bool is_open() const noexcept { return !lines_.empty(); }

  /// Records the call whose steps are posted next. Its mark includes all earlier calls: ranks that differ once in a
  /// call that no rank waits for differ in every later one.
  void begin(const call_signature& c) noexcept {
    call_ = detail::mix(call_, c.fingerprint());
    remember(c);
  }
  /// Records a call that goes by messages, for the report of a mismatch.
  void remember(call_signature c, algorithm via) noexcept {
    by_messages_ = detail::mix(by_messages_, c.fingerprint());
    compared_ = compared_ || c.closes();
    c.via = via;
    if (is_open()) remember(c);
  }
  /// Returns one of the last `remembered` calls of `rank`, in no order. A call stays as long as any rank may wait for
  /// its steps. Returns an empty signature if there were fewer calls, or if `rank` is writing this one.
  [[nodiscard]] call_signature recent(int rank, std::size_t i) const noexcept {
    const auto& from = at(rank).calls[i % remembered].words;
    call_signature::packed p;
    for (std::size_t w = 0; w < 4; ++w) p.words[w] = from[w].load(std::memory_order_acquire);
    return from[0].load(std::memory_order_relaxed) == p.words[0] ? call_signature::unpack(p) : call_signature{};
  }

  /// Returns true if one of this rank's last calls was that of close(), which has compared the calls of all ranks.
  [[nodiscard]] bool is_compared() const noexcept {
    for (std::size_t i = 0; is_open() && i < remembered; ++i)
      if (recent(rank_, i).closes()) return true;
    return compared_;
  }

  /// Returns this rank's call of the tag's sequence number, for a peer that waits for it in another operation. Calls
  /// that went by messages are in the log of recent calls.
  [[nodiscard]] call_log::entry recall(std::uint64_t t) const noexcept override {
    for (std::size_t i = 0; is_open() && i < remembered; ++i) {
      const call_signature c = recent(rank_, i);
      if (c.sequence == 0 || !tag::of_one_operation(tag::make(members_->context, c.sequence, 0), t)) continue;
      if (c.via != algorithm::automatic || c.what == collective::broadcast_sized) continue;
      return noted(members_->context, c, c.what == collective::barrier ? algorithm::automatic : algorithm::direct);
    }
    return {};
  }

 protected:
  [[nodiscard]] line& at(int rank) const noexcept { return *lines_[static_cast<std::size_t>(rank)]; }

  /// Returns the mark of the steps of the call that holds the ticket.
  [[nodiscard]] std::uint64_t mark() const noexcept { return call_; }

  /// Returns the error of this rank when it has found `rank` at a step of another call. The error names the first call
  /// in which they differ, if both still have it.
  [[nodiscard]] status difference(int rank) const noexcept {
    call_signature mine{}, theirs{};
    for (std::size_t i = 0; i < remembered * remembered; ++i) {
      const call_signature m = recent(rank_, i / remembered), t = recent(rank, i % remembered);
      if (m.sequence == 0 || m.sequence != t.sequence || m == t) continue;
      if (mine.sequence != 0 && m.sequence >= mine.sequence) continue;
      mine = m;
      theirs = t;
    }
    message_mismatch found{theirs.short_id(), mine.short_id(),   theirs.count,
                           mine.count,        members_->context, mine.sequence};
    found.of = message_mismatch::unit::elements;
    call_signature by_theirs = mine;
    by_theirs.via = theirs.via;
    if (mine != theirs && by_theirs == theirs) {
      const auto taken = [](algorithm a) {
        return static_cast<std::uint64_t>(a == algorithm::automatic ? algorithm::direct : a);
      };
      found.bytes = taken(theirs.via);
      found.room = taken(mine.via);
      found.of = message_mismatch::unit::algorithms;
    }
    status why = found.failure(members_->world_rank(rank), members_->world_rank(rank_));
    if (mine.sequence == 0) why.detail = 0;
    return why;
  }

  std::vector<line*> lines_;
  const group* members_ = nullptr;
  int rank_ = 0;

 private:
  void remember(const call_signature& c) noexcept {
    auto& to = at(rank_).calls[begun_++ % remembered].words;
    const auto from = c.pack();
    to[0].store(0, std::memory_order_relaxed);  // marks the entry as empty for ranks that read it meanwhile
    to[3].store(from.words[3], std::memory_order_release);
    to[2].store(from.words[2], std::memory_order_release);
    to[1].store(from.words[1], std::memory_order_release);
    to[0].store(from.words[0], std::memory_order_release);
  }

  std::uint64_t call_ = 0, by_messages_ = 0;
  std::size_t begun_ = 0;
  bool compared_ = false;
};

}  // namespace tutti::algo
