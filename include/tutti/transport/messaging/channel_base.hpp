#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/routine.hpp>
#include <tutti/core/kernels/copy.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/byte_stream.hpp>
#include <tutti/transport/messaging/by_operation.hpp>
#include <tutti/transport/messaging/call_log.hpp>
#include <tutti/transport/messaging/frame.hpp>
#include <tutti/transport/messaging/frame_queue.hpp>
#include <tutti/transport/messaging/message_mismatch.hpp>
#include <tutti/transport/messaging/tag.hpp>
#include <tutti/transport/messaging/unexpected_queue.hpp>

namespace tutti::detail {

class channel_base;

/// Transfer: one end of a message in flight, and the awaitable that send and recv return. It lives in the frame of the
/// routine that awaits it, and may be destroyed before it has finished.
class transfer : public pending, public chained<transfer> {
 public:
  transfer(std::uint64_t tag, std::byte* data, std::size_t bytes, std::uint16_t call = 0) noexcept
      : tag_(tag), data_(data), bytes_(bytes), call_(call) {}
  inline ~transfer();

  /// Returns the rank that the message is received from; -1 while that may be any.
  [[nodiscard]] int from() const noexcept { return from_; }

 private:
  friend class channel_base;
  template <byte_stream>
  friend class channel;
  friend std::uint64_t tag_of(const transfer& t) noexcept { return t.tag_; }
  void leave_index() noexcept {
    if (index_) std::exchange(index_, nullptr)->remove(*this);
  }

  std::uint64_t tag_;
  std::byte* data_;
  std::size_t bytes_;
  int from_ = -1;                            // rank that the message is received from
  std::uint16_t call_;                       // short id of the collective; 0 if it is not compared
  bool announced_ = false;                   // the receiver was told of this message
  by_operation<transfer>* index_ = nullptr;  // index of posted receives that it is in
  channel_base* busy_ = nullptr;             // the channel that holds a pointer to this while its bytes move
};

/// Part of a channel that does not depend on its byte stream: the matching of messages, the comparison of calls, and
/// the queues of frames and messages.
class channel_base {
 public:
  /// Bytes up to which a message is sent at once. A longer one waits for the ready frame of its receiver, so that no
  /// unexpected message is large.
  static constexpr std::size_t eager_limit = early_places::largest;
  /// Bytes of unexpected messages beyond which the stream is not read, so that a rank that runs ahead is held back. The
  /// stream is read nevertheless while this rank waits for something that may come behind.
  static constexpr std::size_t most_unexpected = 64 << 20;

  channel_base(pending_list& ready, early_places& places) noexcept : done_(&ready), unexpected_(places) {}
  channel_base(const channel_base&) = delete;
  channel_base& operator=(const channel_base&) = delete;

  /// Sets the peer, this rank's list of receives from any peer, and its call log; called once before any transfer. A
  /// message goes to a receive from any peer only if no receive names this peer.
  void share(int peer, pending_list& from_any, const call_log& calls) noexcept {
    peer_ = peer;
    from_any_ = &from_any;
    calls_ = &calls;
  }
  /// Returns true if a receive from any peer would find a message of this tag here; the caller then receives from this
  /// peer.
  [[nodiscard]] bool offers(std::uint64_t tag) const noexcept {
    if (const auto* u = unexpected_.index().find(tag)) return u->complete || !posted_index_.find(tag);
    return nth_announced(tag) != nullptr;
  }
  /// Compares `mine`, a transfer or call that begins, with the messages of its operation that have arrived. Returns
  /// errc::mismatch if one of them was sent in another call.
  template <class Mine>
  [[nodiscard]] status suspect_earlier(const Mine& mine) const noexcept {
    for (const auto* u = unexpected_.index().first(tag_of(mine)); u; u = unexpected_.index().after(*u))
      if (status s = suspect(mine, u->tag, u->call, u->bytes.size()); !s.ok()) return s;
    return suspect_ready(mine);
  }
  /// Looks for a message of an operation that has ended on this rank. The operation took all that it wanted, so the
  /// peer has called another one: returns errc::mismatch. It is enough to look at the oldest messages, because this
  /// rank calls their operations sooner or later.
  template <class InFlight>
  [[nodiscard]] status suspect_left_over(InFlight in_flight) const noexcept {
    int limit = 8;
    for (const auto& u : unexpected_) {
      if (limit-- == 0) break;
      const call_log::entry* mine = u.call != 0 && !tag::prepares(u.tag) ? calls_->find(u.tag) : nullptr;
      if (mine && !in_flight(u.tag)) return calls_differ(*mine, u.tag, u.call);
    }
    return {};
  }
  /// Records that the peer sends nothing beyond what has arrived.
  void note_gone() noexcept { gone_ = true; }
  [[nodiscard]] bool gone() const noexcept { return gone_; }

  /// Returns the sequence number, in the 24 bits of a tag, of the last operation of the world in which the peer was
  /// seen; 0 if it was seen in none.
  [[nodiscard]] std::uint64_t last_sequence() const noexcept { return last_sequence_; }
  [[nodiscard]] std::uint64_t frames_received() const noexcept { return frames_; }
  [[nodiscard]] bool said_bye() const noexcept { return bye_; }
  /// Returns true if the failure was reported by the peer or through the stream. The report names the rank at fault if
  /// that is known.
  [[nodiscard]] bool was_told() const noexcept { return told_; }

  /// Returns true if a transfer of this operation is pending here.
  [[nodiscard]] bool holds(const routine_promise* work) const noexcept {
    for (const pending_list* list : {&posted_, &queue_, &not_ready_})
      for (pending* p = list->front(); p; p = pending_list::after(*p))
        if (p->root() == work) return true;
    return (in_ && in_->root() == work) || (out_ && out_->root() == work);
  }
  /// Returns true if something on this rank depends on what the peer sends next.
  [[nodiscard]] bool awaits_peer() const noexcept {
    return !posted_.empty() || !not_ready_.empty() || (from_any_ && !from_any_->empty());
  }
  /// Returns true if a transfer with this peer is pending.
  [[nodiscard]] bool waits() const noexcept {
    return in_ || out_ || !posted_.empty() || !queue_.empty() || !not_ready_.empty();
  }
  [[nodiscard]] bool wants_to_write() const noexcept { return out_ || !control_.empty() || !queue_.empty(); }

  /// Detaches a transfer that is destroyed while its bytes move.
  void forget(transfer& t) noexcept {
    if (in_ == &t) in_ = nullptr;  // the rest of its bytes is read and dropped
    if (out_ == &t) cut();
  }

  void finish(transfer& t, status s) noexcept {
    t.leave_index();
    t.busy_ = nullptr;
    done_->complete(t, s);
  }

  /// Fails all transfers with `why`, and drops what was queued.
  void fail(status why) noexcept {
    transfer* const half_sent = out_;
    if (half_sent) cut();
    for (transfer* t : {std::exchange(in_, nullptr), half_sent})
      if (t) finish(*t, why);
    for (pending_list* list : {&posted_, &queue_, &not_ready_})
      while (pending* p = list->front()) finish(static_cast<transfer&>(*p), why);
    unexpected_.clear();
    control_.clear();
    announced_.clear();
  }

 protected:
  /// Announcement of a large user message that its sender keeps until it is asked for; also a ready frame that came
  /// early. Messages of one tag are announced, and arrive, in order: the first belongs to the first receive posted for
  /// the tag.
  struct announcement {
    std::uint64_t tag;
    std::uint64_t bytes;
    std::uint16_t call = 0;
  };

  status told(const status& s) noexcept {
    told_ = told_ || (!s.ok() && s.code != errc::peer_lost);
    return s;
  }

  void note_sequence(const frame& f) noexcept {
    const bool of_an_operation = f.what != frame::kind::abort && f.what != frame::kind::bye;
    if (!of_an_operation || tag::is_point_to_point(f.tag) || tag::context(f.tag) != 0) return;
    const std::uint64_t s = tag::sequence(f.tag);
    if (last_sequence_ == 0 || tag::comes_after(s, last_sequence_)) last_sequence_ = s;
  }

  static transfer* find(const pending_list& list, std::uint64_t tag, std::size_t nth = 0) noexcept {
    for (pending* p = list.front(); p; p = pending_list::after(*p))
      if (static_cast<transfer*>(p)->tag_ == tag && nth-- == 0) return static_cast<transfer*>(p);
    return nullptr;
  }
  [[nodiscard]] std::size_t number_announced(std::uint64_t tag) const noexcept {
    std::size_t n = 0;
    for (const announcement& a : announced_) n += a.tag == tag;
    return n;
  }
  [[nodiscard]] const announcement* nth_announced(std::uint64_t tag, std::size_t nth) const noexcept {
    for (const announcement& a : announced_)
      if (a.tag == tag && nth-- == 0) return &a;
    return nullptr;
  }
  /// Returns the announcement that the next receive of this tag will take; null if there is none.
  [[nodiscard]] const announcement* nth_announced(std::uint64_t tag) const noexcept {
    return announced_.empty() ? nullptr : nth_announced(tag, posted_index_.number_of(tag));
  }
  [[nodiscard]] transfer* from_any(std::uint64_t tag) const noexcept {
    return from_any_ ? find(*from_any_, tag) : nullptr;
  }

  /// Returns true if the calls of a transfer and of a message or ready frame must be equal but differ.
  static bool differ(const transfer& mine, std::uint64_t tag, std::uint16_t call) noexcept {
    return mine.call_ != call && mine.call_ != 0 && call != 0 && !(tag::prepares(mine.tag_) && tag::prepares(tag));
  }
  static status odd(const transfer& mine, std::uint16_t call, std::uint64_t bytes) noexcept {
    return message_mismatch{call, mine.call_, bytes, mine.bytes_, tag::context(mine.tag_), tag::sequence(mine.tag_)}
        .failure();
  }
  /// Compares a message with the transfer that takes it. Returns errc::mismatch if calls or lengths differ.
  static status compare(const transfer& mine, std::uint16_t call, std::uint64_t bytes) noexcept {
    if (mine.bytes_ == bytes && !differ(mine, mine.tag_, call)) return {};
    return odd(mine, call, bytes);
  }
  /// Compares a message or ready frame with a transfer that it does not match. Returns errc::mismatch if both belong to
  /// one operation, in which the ranks have made different calls.
  [[nodiscard]] static status suspect(const transfer& t, std::uint64_t tag, std::uint16_t call,
                                      std::uint64_t bytes) noexcept {
    if (!differ(t, tag, call) || !tag::of_one_operation(t.tag_, tag)) return {};
    return odd(t, call, bytes);
  }
  /// Compares a frame that nothing waits for with the transfers of its operation, and with the call log: this rank may
  /// have called that operation and wait for nobody in it.
  [[nodiscard]] status suspect(const frame& f) const noexcept {
    if (f.call == 0) return {};
    for (const transfer* t = posted_index_.first(f.tag); t; t = by_operation<transfer>::after(*t))
      if (status s = suspect(*t, f.tag, f.call, f.bytes); !s.ok()) return s;
    for (const pending* p = not_ready_.front(); p; p = pending_list::after(*p))
      if (status s = suspect(static_cast<const transfer&>(*p), f.tag, f.call, f.bytes); !s.ok()) return s;
    return suspect(recall(f.tag), f.tag, f.call, f.bytes);
  }
  template <class Mine>
  [[nodiscard]] status suspect_ready(const Mine& mine) const noexcept {
    for (const announcement& r : readies_)
      if (status s = suspect(mine, r.tag, r.call, 0); !s.ok()) return s;
    return {};
  }

  /// Returns the errc::mismatch for an operation in which the peer called `call`, and this rank `mine`.
  static status calls_differ(const call_log::entry& mine, std::uint64_t tag, std::uint16_t call) noexcept {
    message_mismatch found{call, mine.short_id, 0, 0, tag::context(tag), tag::sequence(tag)};
    found.of = message_mismatch::unit::elements;
    return found.failure();
  }
  /// Compares a message or ready frame with a call of this rank. Returns errc::mismatch if they belong to one operation
  /// and differ.
  static status suspect(const call_log::entry& mine, std::uint64_t tag, std::uint16_t call, std::uint64_t) noexcept {
    if (mine.short_id == call || mine.short_id == 0 || call == 0 || tag::prepares(tag)) return {};
    return tag::of_one_operation(mine.tag, tag) ? calls_differ(mine, tag, call) : status{};
  }
  [[nodiscard]] call_log::entry recall(std::uint64_t tag) const noexcept {
    return calls_ ? calls_->recall(tag) : call_log::entry{};
  }
  /// Handles a question of the peer, which waits in an operation. Returns errc::mismatch if this rank has called
  /// something else in its place, or uses another algorithm.
  [[nodiscard]] status heard_question(const frame& f) const noexcept {
    const call_log::entry mine = recall(f.tag);
    if (mine.short_id == 0) return {};
    if (mine.short_id != f.call || (mine.all & frame::most_bytes) != f.bytes) return calls_differ(mine, f.tag, f.call);
    const std::uint32_t theirs = tag::step(f.tag), own = tag::step(mine.tag);
    if (theirs == own) return {};
    message_mismatch by{f.call, mine.short_id, theirs, own, tag::context(f.tag), tag::sequence(f.tag)};
    by.of = message_mismatch::unit::algorithms;
    return by.failure();
  }

  /// Looks for an unexpected message for this receive, and copies it if it has arrived completely. Returns
  /// errc::mismatch if calls or lengths differ.
  status match_unexpected(transfer& t, bool& matched) noexcept {
    matched = false;
    for (auto* it = unexpected_.index().first(t.tag_); it; it = unexpected_.index().after(*it)) {
      if (it->tag != t.tag_) {
        if (status s = suspect(t, it->tag, it->call, it->bytes.size()); !s.ok()) return s;
        continue;
      }
      if (!it->complete && posted_index_.find(t.tag_)) return {};  // it belongs to the first receive that was posted
      if (status s = compare(t, it->call, it->bytes.size()); !s.ok()) return s;
      if (!it->complete) return {};  // its last bytes are still coming; arrive() finishes this receive
      copy_bytes(t.data_, it->bytes.data(), t.bytes_);
      unexpected_.remove(*it);
      matched = true;
      return {};
    }
    return {};
  }

  // The rest of the message may be freed together with its transfer, so that nothing can follow on this stream.
  void cut() noexcept {
    out_ = nullptr;
    payload_ = {};
    cut_ = true;
  }

  pending_list* done_;
  pending_list posted_;  // receives whose message has not come
  by_operation<transfer> posted_index_;
  pending_list queue_;      // sends, in order
  pending_list not_ready_;  // large sends without a ready frame yet, and what waits behind them with their tags
  frame_queue control_;
  unexpected_queue unexpected_;
  std::vector<announcement> readies_;  // ready frames for messages that this rank has not sent yet
  std::vector<announcement> announced_;
  pending_list* from_any_ = nullptr;
  const call_log* calls_ = nullptr;
  int peer_ = -1;
  transfer* in_ = nullptr;
  transfer* out_ = nullptr;
  std::span<const std::byte> payload_{};  // the part of out_ that is not written yet
  bool cut_ = false;
  std::uint64_t last_sequence_ = 0, frames_ = 0;
  bool bye_ = false, gone_ = false, told_ = false;
};

inline transfer::~transfer() {
  leave_index();
  if (busy_) busy_->forget(*this);
}

}  // namespace tutti::detail
