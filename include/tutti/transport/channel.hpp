#pragma once
#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/routine.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/frame.hpp>
#include <tutti/transport/tag.hpp>

namespace tutti {

/// A two-way stream of bytes to one peer that never blocks. write and read move what they can; 0 means "not now", or
/// that the pipe has failed, which failure() tells.
template <class P>
concept pipe = requires(P& p, std::span<const std::byte> out, std::span<std::byte> in) {
  { p.write(out, out) } noexcept -> std::same_as<std::size_t>;  // gathers header and payload
  { p.read(in) } noexcept -> std::same_as<std::size_t>;
  { p.failure() } noexcept -> std::same_as<status>;
  { p.open() } noexcept;  // a transfer with this peer has begun: connect, watch it
};

namespace detail {

class channel_base;

/// One message on its way: the awaitable that send and recv return. Lives in the routine's frame.
class transfer : public pending {
 public:
  transfer(std::uint64_t tag, std::byte* data, std::size_t bytes) noexcept : tag_(tag), data_(data), bytes_(bytes) {}
  inline ~transfer();

 private:
  friend class channel_base;
  template <pipe>
  friend class channel;
  std::uint64_t tag_;
  std::byte* data_;
  std::size_t bytes_;
  channel_base* busy_ = nullptr;  // the channel that holds a pointer to this while its bytes move
};

/// What does not depend on the pipe: matching of messages, and the frames that go before the next message.
class channel_base {
 public:
  /// Larger messages wait until their receiver says that it is there, so that nothing unexpected is large.
  static constexpr std::size_t eager_limit = 256 << 10;
  /// Beyond it a rank that runs ahead is held back.
  static constexpr std::size_t most_unexpected = 64 << 20;

  explicit channel_base(pending_list& ready) noexcept : done_(&ready) {}
  channel_base(const channel_base&) = delete;
  channel_base& operator=(const channel_base&) = delete;

  [[nodiscard]] std::uint64_t last_sequence() const noexcept { return last_sequence_; }
  [[nodiscard]] std::uint64_t frames_received() const noexcept { return frames_; }
  [[nodiscard]] bool said_bye() const noexcept { return bye_; }

  [[nodiscard]] bool holds(const routine_promise* work) const noexcept {
    for (const pending_list* list : {&posted_, &queue_, &not_ready_})
      for (pending* p = list->front(); p; p = pending_list::after(*p))
        if (p->root() == work) return true;
    return (in_ && in_->root() == work) || (out_ && out_->root() == work);
  }
  [[nodiscard]] bool waits() const noexcept {
    return in_ || out_ || !posted_.empty() || !queue_.empty() || !not_ready_.empty();
  }
  [[nodiscard]] bool wants_to_write() const noexcept { return out_ || !control_.empty() || !queue_.empty(); }

  void forget(transfer& t) noexcept {
    if (in_ == &t) in_ = nullptr;  // the rest of its bytes is read and dropped
    if (out_ == &t) cut();
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
  }

 protected:
  struct unexpected {
    std::uint64_t tag;
    std::vector<std::byte> bytes;
    bool complete = false;
  };

  /// What a message that nobody has asked for yet takes, its bookkeeping included.
  static constexpr std::size_t cost(std::size_t bytes) noexcept { return bytes + 64; }

  void finish(transfer& t, status s) noexcept {
    t.busy_ = nullptr;
    done_->complete(t, s);
  }

  static transfer* find(const pending_list& list, std::uint64_t tag) noexcept {
    for (pending* p = list.front(); p; p = pending_list::after(*p))
      if (static_cast<transfer*>(p)->tag_ == tag) return static_cast<transfer*>(p);
    return nullptr;
  }

  /// An earlier arrival that this receive matches; errc::mismatch when the lengths differ.
  status match_unexpected(transfer& t, bool& matched) noexcept {
    matched = false;
    for (auto it = unexpected_.begin(); it != unexpected_.end(); ++it) {
      if (it->tag != t.tag_) continue;
      if (!it->complete && find(posted_, t.tag_)) return {};  // it belongs to the first receive that was posted
      if (it->bytes.size() != t.bytes_) return {errc::mismatch};
      if (!it->complete) return {};  // its last bytes are still coming: arrive() looks among the posted ones
      if (t.bytes_ != 0) std::memcpy(t.data_, it->bytes.data(), t.bytes_);
      unexpected_bytes_ -= cost(it->bytes.size());
      unexpected_.erase(it);
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
  pending_list posted_;     // receives without their message
  pending_list queue_;      // sends in order
  pending_list not_ready_;  // large sends whose receiver has not spoken yet, and what follows them with their tags
  std::deque<frame> control_;
  std::list<unexpected> unexpected_;  // nodes stay where they are: one of them may be half filled
  std::vector<std::uint64_t> readies_;
  std::size_t unexpected_bytes_ = 0;
  transfer* in_ = nullptr;
  transfer* out_ = nullptr;
  std::span<const std::byte> payload_{};  // what is left of out_
  bool cut_ = false;
  std::uint64_t last_sequence_ = 0, frames_ = 0;
  bool bye_ = false;
};

inline transfer::~transfer() {
  if (busy_) busy_->forget(*this);
}

/// The protocol of messages over one pipe.
template <pipe P>
class channel : public channel_base {
 public:
  template <class... Args>
  explicit channel(pending_list& ready, Args&&... args) : channel_base(ready), pipe_(std::forward<Args>(args)...) {}

  [[nodiscard]] P& stream() noexcept { return pipe_; }

  status send(transfer& t) noexcept try {
    if (bye_) return {errc::peer_left};
    pipe_.open();
    if (find(not_ready_, t.tag_)) {  // not past an earlier message of its tag
      not_ready_.push_back(t);
      return {};
    }
    if (t.bytes_ > eager_limit) {
      const auto ready = std::find(readies_.begin(), readies_.end(), t.tag_);
      if (ready == readies_.end()) {
        not_ready_.push_back(t);
        return {};
      }
      readies_.erase(ready);
    }
    queue_.push_back(t);
    bool moved = false;
    return write_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  status recv(transfer& t) noexcept try {
    bool matched = false;
    if (status s = match_unexpected(t, matched); !s.ok()) return s;
    if (matched) {
      finish(t, status{});
      return {};
    }
    if (bye_) return {errc::peer_left};
    pipe_.open();
    posted_.push_back(t);
    bool moved = false;
    if (t.bytes_ > eager_limit) {
      control_.push_back({frame::kind::ready, t.tag_, 0});
      if (status s = write_some(moved); !s.ok()) return s;
    }
    return read_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  status progress(bool& moved) noexcept try {
    if (status s = write_some(moved); !s.ok()) return s;
    return read_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  /// Puts a last frame behind a message that is half written, if there is one, and tries to send it.
  void say(const frame& last) noexcept try {
    control_.push_front(last);
    bool moved = false;
    (void)write_some(moved);
  } catch (const std::bad_alloc&) {
  }

  /// Also while a frame that was begun is not all written.
  [[nodiscard]] bool wants_to_write() const noexcept {
    return channel_base::wants_to_write() || header_sent_ < frame::encoded_bytes || !payload_.empty();
  }

 private:
  static constexpr std::size_t most_per_poll = 4 << 20;
  static constexpr std::size_t most_readies = 1 << 16;

  bool next_frame() noexcept {
    frame f;
    if (!control_.empty()) {
      f = control_.front();
      control_.pop_front();
    } else if (pending* p = queue_.front()) {
      auto& t = static_cast<transfer&>(*p);
      queue_.remove(t);
      out_ = &t;
      t.busy_ = this;
      f = {t.bytes_ > eager_limit ? frame::kind::data : frame::kind::eager, t.tag_, t.bytes_};
    } else {
      return false;
    }
    header_out_ = f.encode();
    header_sent_ = 0;
    payload_ = out_ ? std::span<const std::byte>{out_->data_, out_->bytes_} : std::span<const std::byte>{};
    return true;
  }

  status write_some(bool& moved) {
    while (!cut_) {
      if (header_sent_ == frame::encoded_bytes && payload_.empty()) {
        if (out_) finish(*std::exchange(out_, nullptr), status{});
        if (!next_frame()) return {};
      }
      const std::size_t n = pipe_.write(std::span{header_out_}.subspan(header_sent_), payload_);
      if (n == 0) return pipe_.failure();
      moved = true;
      const std::size_t of_header = std::min(n, frame::encoded_bytes - header_sent_);
      header_sent_ += of_header;
      payload_ = payload_.subspan(n - of_header);
    }
    return {};
  }

  status read_some(bool& moved) {
    for (std::size_t total = 0; total < most_per_poll;) {
      if (held_) {
        if (status s = place(frame{*held_}); !s.ok() || held_) return s;
        if (body_bytes_ == 0) arrive();
        continue;
      }
      std::size_t n = 0;
      if (header_got_ < frame::encoded_bytes) {
        n = pipe_.read(std::span{header_in_}.subspan(header_got_));
        if (n == 0) return pipe_.failure();
        header_got_ += n;
        if (header_got_ == frame::encoded_bytes) {
          if (status s = dispatch(); !s.ok()) return s;
        }
      } else {
        n = pipe_.read(body());
        if (n == 0) return pipe_.failure();
        body_got_ += n;
      }
      total += n;
      moved = true;
      if (header_got_ == frame::encoded_bytes && body_got_ == body_bytes_ && !held_) {
        const bool expected = in_ != nullptr;
        arrive();
        // What comes next is better left where it is until its routine, which runs now, has said where it belongs.
        if (expected && posted_.empty()) return {};
      }
    }
    return {};
  }

  std::span<std::byte> body() noexcept {
    const std::size_t left = body_bytes_ - body_got_;
    if (in_) return {in_->data_ + body_got_, left};
    if (filling_) return {filling_->bytes.data() + body_got_, left};
    return std::span{dropped_}.first(std::min(left, dropped_.size()));
  }

  status dispatch() {
    const auto f = frame::decode(header_in_);
    if (!f) return {errc::protocol};
    ++frames_;
    if (!tag::is_point_to_point(f->tag) && f->what != frame::kind::abort) last_sequence_ = tag::sequence(f->tag);
    body_bytes_ = f->bytes;
    body_got_ = 0;
    switch (f->what) {
      case frame::kind::abort:
        return f->cause();
      case frame::kind::bye:
        bye_ = true;
        return posted_.empty() && not_ready_.empty() ? status{} : status{errc::peer_left};
      case frame::kind::ready:
        return heard_ready(f->tag);
      case frame::kind::eager:
      case frame::kind::data:
        break;
    }
    return place(*f);
  }

  /// Finds room for a message whose header is here; holds the stream back while there is none.
  status place(const frame& f) {
    held_.reset();
    if (transfer* t = find(posted_, f.tag)) {
      if (t->bytes_ != f.bytes) return {errc::mismatch};
      posted_.remove(*t);
      in_ = t;
      t->busy_ = this;
      return {};
    }
    if (f.what == frame::kind::data || f.bytes > eager_limit) return {errc::protocol};
    if (unexpected_bytes_ + cost(f.bytes) > most_unexpected) {
      held_ = f;
      return {};
    }
    unexpected_.push_back({f.tag, std::vector<std::byte>(f.bytes)});
    unexpected_bytes_ += cost(f.bytes);
    filling_ = &unexpected_.back();
    return {};
  }

  status heard_ready(std::uint64_t t) {
    transfer* waiting = find(not_ready_, t);
    if (!waiting) {
      if (readies_.size() >= most_readies) return {errc::protocol};
      readies_.push_back(t);
      return {};
    }
    do {
      queue_.push_back(*waiting);
      waiting = find(not_ready_, t);
    } while (waiting && waiting->bytes_ <= eager_limit);
    return {};
  }

  // The last byte of a frame is here.
  void arrive() {
    header_got_ = body_bytes_ = body_got_ = 0;
    if (in_) {
      finish(*std::exchange(in_, nullptr), status{});
    } else if (filling_) {
      unexpected& u = *std::exchange(filling_, nullptr);
      u.complete = true;
      if (transfer* t = find(posted_, u.tag)) {
        if (!u.bytes.empty()) std::memcpy(t->data_, u.bytes.data(), u.bytes.size());
        finish(*t, status{});
        unexpected_bytes_ -= cost(u.bytes.size());
        unexpected_.pop_back();
      }
    }
  }

  P pipe_;
  frame::encoded header_out_{}, header_in_{};
  std::size_t header_sent_ = frame::encoded_bytes, header_got_ = 0;
  std::size_t body_bytes_ = 0, body_got_ = 0;
  unexpected* filling_ = nullptr;
  std::optional<frame> held_;  // a header whose message waits for room
  std::array<std::byte, 4096> dropped_{};
};

}  // namespace detail
}  // namespace tutti
