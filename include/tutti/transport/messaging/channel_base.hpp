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

/// One message on its way: the awaitable that send and recv return. Lives in the routine's frame.
class transfer : public pending, public chained<transfer> {
 public:
  transfer(std::uint64_t tag, std::byte* data, std::size_t bytes, std::uint16_t call = 0) noexcept
      : tag_(tag), data_(data), bytes_(bytes), call_(call) {}
  inline ~transfer();

  /// The peer that a message is received from; -1 while that may be any.
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
  int from_ = -1;                            // where what is received comes from
  std::uint16_t call_;                       // of which collective, in brief; 0 where nobody compares
  bool announced_ = false;                   // the receiver was told of what is sent
  by_operation<transfer>* index_ = nullptr;  // of the receives that it is posted among
  channel_base* busy_ = nullptr;             // the channel that holds a pointer to this while its bytes move
};

/// What does not depend on the pipe: matching of messages, and the frames that go before the next message.
class channel_base {
 public:
  /// Larger messages wait until their receiver says that it is there, so that nothing unexpected is large.
  static constexpr std::size_t eager_limit = early_places::largest;
  /// Beyond it a rank that runs ahead is held back, unless something waits for what may come behind.
  static constexpr std::size_t most_unexpected = 64 << 20;

  channel_base(pending_list& ready, early_places& places) noexcept : done_(&ready), unexpected_(places) {}
  channel_base(const channel_base&) = delete;
  channel_base& operator=(const channel_base&) = delete;

  /// Whose messages these are, and where receives are that would take one of them or of other peers. A message goes to
  /// them when no receive has asked this peer for it. `calls` are those of this rank.
  void share(int peer, pending_list& from_any, const call_log& calls) noexcept {
    peer_ = peer;
    from_any_ = &from_any;
    calls_ = &calls;
  }
  /// True if a receive from any peer would find a message of this tag here: it is to be received from this peer.
  [[nodiscard]] bool offers(std::uint64_t tag) const noexcept {
    if (const auto* u = unexpected_.index().find(tag)) return u->complete || !posted_index_.find(tag);
    return nth_announced(tag) != nullptr;
  }
  /// What begins here, a transfer or a call, where messages of its operation have come before that say another one.
  template <class Mine>
  [[nodiscard]] status suspect_earlier(const Mine& mine) const noexcept {
    for (const auto* u = unexpected_.index().first(tag_of(mine)); u; u = unexpected_.index().after(*u))
      if (status s = suspect(mine, u->tag, u->call, u->bytes.size()); !s.ok()) return s;
    return suspect_ready(mine);
  }
  /// A message of an operation that has ended on this rank: it took all that it wanted, and the peer called another
  /// one. It is found among the oldest, which are of operations that this rank has called, sooner or later.
  template <class InFlight>
  [[nodiscard]] status suspect_left_over(InFlight in_flight) const noexcept {
    int looks = 8;
    for (const auto& u : unexpected_) {
      if (looks-- == 0) break;
      const call_log::entry* mine = u.call != 0 && !tag::prepares(u.tag) ? calls_->find(u.tag) : nullptr;
      if (mine && !in_flight(u.tag)) return calls_differ(*mine, u.tag, u.call);
    }
    return {};
  }
  /// The peer will send nothing more than what is here.
  void note_gone() noexcept { gone_ = true; }
  [[nodiscard]] bool gone() const noexcept { return gone_; }

  /// The number of the last operation of the world that the peer was seen at, as far as a tag tells it; 0 for none.
  [[nodiscard]] std::uint64_t last_sequence() const noexcept { return last_sequence_; }
  [[nodiscard]] std::uint64_t frames_received() const noexcept { return frames_; }
  [[nodiscard]] bool said_bye() const noexcept { return bye_; }
  /// It failed by what somebody said, there or to the pipe, who named the rank at fault if he knew it.
  [[nodiscard]] bool was_told() const noexcept { return told_; }

  [[nodiscard]] bool holds(const routine_promise* work) const noexcept {
    for (const pending_list* list : {&posted_, &queue_, &not_ready_})
      for (pending* p = list->front(); p; p = pending_list::after(*p))
        if (p->root() == work) return true;
    return (in_ && in_->root() == work) || (out_ && out_->root() == work);
  }
  /// Something here goes on with what the peer has still to say.
  [[nodiscard]] bool awaits_peer() const noexcept {
    return !posted_.empty() || !not_ready_.empty() || (from_any_ && !from_any_->empty());
  }
  [[nodiscard]] bool waits() const noexcept {
    return in_ || out_ || !posted_.empty() || !queue_.empty() || !not_ready_.empty();
  }
  [[nodiscard]] bool wants_to_write() const noexcept { return out_ || !control_.empty() || !queue_.empty(); }

  void forget(transfer& t) noexcept {
    if (in_ == &t) in_ = nullptr;  // the rest of its bytes is read and dropped
    if (out_ == &t) cut();
  }

  void finish(transfer& t, status s) noexcept {
    t.leave_index();
    t.busy_ = nullptr;
    done_->complete(t, s);
  }

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
  /// A large message of a user's that its sender keeps until it is asked for. Messages of one tag are announced, and
  /// arrive, in their order: the first is the first receive's that was posted for the tag.
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

  /// The calls of a transfer, and of a message or a ready, differ where they should not.
  static bool differ(const transfer& mine, std::uint64_t tag, std::uint16_t call) noexcept {
    return mine.call_ != call && mine.call_ != 0 && call != 0 && !(tag::prepares(mine.tag_) && tag::prepares(tag));
  }
  static status odd(const transfer& mine, std::uint16_t call, std::uint64_t bytes) noexcept {
    return message_mismatch{call, mine.call_, bytes, mine.bytes_, tag::context(mine.tag_), tag::sequence(mine.tag_)}
        .failure();
  }
  /// A message of this length for this transfer.
  static status compare(const transfer& mine, std::uint16_t call, std::uint64_t bytes) noexcept {
    if (mine.bytes_ == bytes && !differ(mine, mine.tag_, call)) return {};
    return odd(mine, call, bytes);
  }
  /// A message or a ready that this transfer does not match: of the same operation, which is another one at the peer.
  [[nodiscard]] static status suspect(const transfer& t, std::uint64_t tag, std::uint16_t call,
                                      std::uint64_t bytes) noexcept {
    if (!differ(t, tag, call) || !tag::of_one_operation(t.tag_, tag)) return {};
    return odd(t, call, bytes);
  }
  /// The same for a frame that nothing waits for. Perhaps nothing will, as this rank has called that operation and
  /// waits for nobody in it: so its call is compared, too.
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

  /// What the peer called by `call`, of this operation, is not what this rank called.
  static status calls_differ(const call_log::entry& mine, std::uint64_t tag, std::uint16_t call) noexcept {
    message_mismatch found{call, mine.short_id, 0, 0, tag::context(tag), tag::sequence(tag)};
    found.of = message_mismatch::unit::elements;
    return found.failure();
  }
  /// A message or a ready of an operation that this rank has called, as another one.
  static status suspect(const call_log::entry& mine, std::uint64_t tag, std::uint16_t call, std::uint64_t) noexcept {
    if (mine.short_id == call || mine.short_id == 0 || call == 0 || tag::prepares(tag)) return {};
    return tag::of_one_operation(mine.tag, tag) ? calls_differ(mine, tag, call) : status{};
  }
  [[nodiscard]] call_log::entry recall(std::uint64_t tag) const noexcept {
    return calls_ ? calls_->recall(tag) : call_log::entry{};
  }
  /// The peer waits in an operation: not for this rank, if that has called something else in its place.
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

  /// An earlier arrival that this receive matches; errc::mismatch when the lengths differ.
  status match_unexpected(transfer& t, bool& matched) noexcept {
    matched = false;
    for (auto* it = unexpected_.index().first(t.tag_); it; it = unexpected_.index().after(*it)) {
      if (it->tag != t.tag_) {
        if (status s = suspect(t, it->tag, it->call, it->bytes.size()); !s.ok()) return s;
        continue;
      }
      if (!it->complete && posted_index_.find(t.tag_)) return {};  // it belongs to the first receive that was posted
      if (status s = compare(t, it->call, it->bytes.size()); !s.ok()) return s;
      if (!it->complete) return {};  // its last bytes are still coming: arrive() looks among the posted ones
      copy_bytes(t.data_, it->bytes.data(), t.bytes_);
      unexpected_.remove(*it);
      matched = true;
      return {};
    }
    return {};
  }

  // The rest of a message may be gone together with its transfer, so nothing can follow on this stream.
  void cut() noexcept {
    out_ = nullptr;
    payload_ = {};
    cut_ = true;
  }

  pending_list* done_;
  pending_list posted_;  // receives without their message
  by_operation<transfer> posted_index_;
  pending_list queue_;      // sends in order
  pending_list not_ready_;  // large sends whose receiver has not spoken yet, and what follows them with their tags
  frame_queue control_;
  unexpected_queue unexpected_;
  std::vector<announcement> readies_;  // for what this rank has not sent yet
  std::vector<announcement> announced_;
  pending_list* from_any_ = nullptr;
  const call_log* calls_ = nullptr;
  int peer_ = -1;
  transfer* in_ = nullptr;
  transfer* out_ = nullptr;
  std::span<const std::byte> payload_{};  // what is left of out_
  bool cut_ = false;
  std::uint64_t last_sequence_ = 0, frames_ = 0;
  bool bye_ = false, gone_ = false, told_ = false;
};

inline transfer::~transfer() {
  leave_index();
  if (busy_) busy_->forget(*this);
}

}  // namespace tutti::detail
