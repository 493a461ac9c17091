#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include <tutti/core/kernels/copy.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/byte_stream.hpp>
#include <tutti/transport/messaging/channel_base.hpp>
#include <tutti/transport/messaging/frame.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace tutti {

namespace detail {

/// Message protocol over one byte stream. Messages of up to 256 KiB are sent at once (eager); a longer one is sent
/// after the ready frame of its receiver. A transport calls it under its engine's lock.
template <byte_stream P>
class channel : public channel_base {
 public:
  template <class... Args>
  channel(pending_list& ready, early_places& places, Args&&... args)
      : channel_base(ready, places), stream_(std::forward<Args>(args)...) {}

  [[nodiscard]] P& stream() noexcept { return stream_; }

  /// Starts to send a message; its data stays valid until `t` finishes. The caller finishes `t` if this returns an
  /// error: errc::mismatch if the peer has called another collective, errc::peer_left if it has said goodbye, or the
  /// failure of the stream.
  status send(transfer& t) noexcept try {
    if (bye_) return {errc::peer_left};
    if (t.bytes_ > eager_limit)
      if (status s = suspect_earlier(t); !s.ok()) return s;
    stream_.open();
    // A message must not overtake an earlier one with its tag.
    if (find(not_ready_, t.tag_) || (t.bytes_ > eager_limit && !to_announce(t) && !take_ready(t.tag_))) {
      not_ready_.push_back(t);
      return {};
    }
    queue_.push_back(t);
    bool moved = false;
    return write_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  /// Starts to receive a message; one that has arrived completely finishes `t` at once. The caller finishes `t` if this
  /// returns an error, as of send(); errc::mismatch also tells of a message of another length.
  status recv(transfer& t) noexcept try {
    t.from_ = peer_;
    bool matched = false;
    if (status s = match_unexpected(t, matched); !s.ok()) return s;
    if (matched) {
      finish(t, status{});
      return {};
    }
    if (bye_) return {errc::peer_left};
    if (status s = suspect_ready(t); !s.ok()) return s;
    const announcement* its = nth_announced(t.tag_);
    if (its)
      if (status s = compare(t, 0, its->bytes); !s.ok()) return s;
    stream_.open();
    post(t);
    bool moved = false;
    if (t.bytes_ > eager_limit)
      if (status s = write_some(moved); !s.ok()) return s;
    return read_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  /// Writes and reads what is possible now, a few MiB at most. Sets `moved` if bytes moved; returns the failure.
  status progress(bool& moved) noexcept try {
    if (status s = write_some(moved); !s.ok()) return s;
    return read_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  /// Queues a last frame, abort or bye, ahead of all others, though behind a message that is half written, and tries to
  /// send it. Ignores a lack of memory, as there is nobody left to tell.
  void say(const frame& last) noexcept try {
    control_.push_front(last);
    bool moved = false;
    (void)write_some(moved);
  } catch (const std::bad_alloc&) {
  }

  /// Asks the peer whether it has called the same collective. Also announces the first message of this operation that
  /// waits for its receiver, so that lengths can be compared. The peer fails with errc::mismatch if calls or lengths
  /// differ; otherwise it does not answer.
  status ask(const call_log::entry& call) noexcept try {
    if (bye_) return {};
    stream_.open();
    control_.push_back({frame::kind::question, call.tag, call.all & frame::most_bytes, call.short_id});
    for (const pending* p = not_ready_.front(); p; p = pending_list::after(*p)) {
      const auto& t = static_cast<const transfer&>(*p);
      if (!tag::of_one_operation(t.tag_, call.tag) || find(queue_, t.tag_)) continue;  // an earlier one is queued
      control_.push_back({frame::kind::announce, t.tag_, t.bytes_, t.call_});
      break;
    }
    bool moved = false;
    return write_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  /// Returns true if frames or messages are queued, or one is not completely written.
  [[nodiscard]] bool wants_to_write() const noexcept {
    return channel_base::wants_to_write() || header_sent_ < frame::encoded_bytes || !payload_.empty();
  }

 private:
  static constexpr std::size_t most_per_poll = 4 << 20;
  static constexpr std::size_t most_readies = 1 << 16;

  /// Returns true for a large user message, which is announced before it is sent: its receiver may take it from any
  /// peer.
  static bool to_announce(const transfer& t) noexcept {
    return t.bytes_ > eager_limit && !t.announced_ && tag::is_point_to_point(t.tag_);
  }
  bool take_ready(std::uint64_t tag) noexcept {
    for (auto ready = readies_.begin(); ready != readies_.end(); ++ready) {
      if (ready->tag != tag) continue;
      readies_.erase(ready);
      return true;
    }
    return false;
  }
  void post(transfer& t) {
    t.from_ = peer_;
    posted_index_.push_back(t);
    t.index_ = &posted_index_;
    posted_.push_back(t);
    if (t.bytes_ > eager_limit) control_.push_back({frame::kind::ready, t.tag_, 0, t.call_});
  }

  /// Queues an announced message until its receiver is ready. Messages with its tag that were queued for sending wait
  /// behind it, so that order is kept.
  void announce(transfer& t) noexcept {
    t.announced_ = true;
    not_ready_.push_front(t);
    while (transfer* behind = find(queue_, t.tag_)) not_ready_.push_back(*behind);
    if (take_ready(t.tag_)) release(t.tag_);
  }
  /// Queues the first waiting message of a tag for sending, and those behind it up to the next that needs a ready frame
  /// of its own. The latter is queued as well if it has not been announced, because it is announced when its turn
  /// comes.
  void release(std::uint64_t tag) noexcept {
    transfer* t = find(not_ready_, tag);
    bool last = false;
    do {
      last = to_announce(*t);
      queue_.push_back(*t);
      t = find(not_ready_, tag);
    } while (t && !last && (t->bytes_ <= eager_limit || to_announce(*t)));
  }

  bool next_frame() noexcept {
    frame f;
    if (!control_.empty()) {
      f = control_.pop_front();
    } else if (pending* p = queue_.front()) {
      auto& t = static_cast<transfer&>(*p);
      queue_.remove(t);
      if (to_announce(t)) {
        announce(t);
        return put({frame::kind::announce, t.tag_, t.bytes_});
      }
      out_ = &t;
      t.busy_ = this;
      f = {t.bytes_ > eager_limit ? frame::kind::data : frame::kind::eager, t.tag_, t.bytes_, t.call_};
    } else {
      return false;
    }
    return put(f);
  }
  bool put(const frame& f) noexcept {
    header_out_ = f.encode();
    header_sent_ = 0;
    payload_ = out_ ? std::span<const std::byte>{out_->data_, out_->bytes_} : std::span<const std::byte>{};
    return true;
  }

  status write_some(bool& moved) {
    for (std::size_t total = 0; !cut_ && total < most_per_poll;) {
      if (header_sent_ == frame::encoded_bytes && payload_.empty()) {
        if (out_) finish(*std::exchange(out_, nullptr), status{});
        if (!next_frame()) return {};
      }
      const auto some = payload_.first((std::min)(payload_.size(), most_per_poll));  // a fast reader could take it all
      const std::size_t n = stream_.write(std::span{header_out_}.subspan(header_sent_), some);
      if (n == 0) return told(stream_.failure());
      moved = true;
      total += n;
      const std::size_t of_header = (std::min)(n, frame::encoded_bytes - header_sent_);
      header_sent_ += of_header;
      payload_ = payload_.subspan(n - of_header);
    }
    return {};
  }

  status read_some(bool& moved) {
    for (std::size_t total = 0; total < most_per_poll;) {
      if (held_) {
        if (status s = place(frame{*held_}); !s.ok()) return s;
        if (held_) return told(stream_.failure());
        if (body_bytes_ == 0) arrive();
        continue;
      }
      std::size_t n = 0;
      if (header_got_ < frame::encoded_bytes) {
        n = stream_.read(std::span{header_in_}.subspan(header_got_));
        if (n == 0) return told(stream_.failure());
        header_got_ += n;
        if (header_got_ == frame::encoded_bytes) {
          if (status s = dispatch(); !s.ok()) return s;
        }
      } else {
        n = stream_.read(body());
        if (n == 0) return told(stream_.failure());
        body_got_ += n;
      }
      total += n;
      moved = true;
      if (header_got_ == frame::encoded_bytes && body_got_ == body_bytes_ && !held_) {
        const bool expected = in_ != nullptr;
        arrive();
        // The next message stays in the stream until the routine that this one resumes has posted its receive: its
        // bytes then go straight to their buffer.
        if (expected && posted_.empty()) return {};
      }
    }
    return {};
  }

  std::span<std::byte> body() noexcept {
    const std::size_t left = body_bytes_ - body_got_;
    if (in_) return {in_->data_ + body_got_, left};
    if (filling_) return {filling_->bytes.data() + body_got_, left};
    return std::span{dropped_}.first((std::min)(left, dropped_.size()));
  }

  status dispatch() {
    const auto f = frame::decode(header_in_);
    if (!f) return {errc::protocol};
    ++frames_;
    note_sequence(*f);
    body_bytes_ = f->what == frame::kind::announce || f->what == frame::kind::question ? 0 : f->bytes;
    body_got_ = 0;
    switch (f->what) {
      case frame::kind::abort:
        return told(f->cause());
      case frame::kind::bye:
        bye_ = true;
        return posted_.empty() && not_ready_.empty() ? status{} : status{errc::peer_left};
      case frame::kind::ready:
        return heard_ready(*f);
      case frame::kind::announce:
        return heard_announcement(*f);
      case frame::kind::question:
        return heard_question(*f);
      case frame::kind::eager:
      case frame::kind::data:
        break;
    }
    return place(*f);
  }

  /// Finds the buffer for a message whose header has arrived: a posted receive, or the unexpected queue. While the
  /// queue is full, the header is kept and the stream is not read.
  status place(const frame& f) {
    held_.reset();
    if (f.what == frame::kind::data && tag::is_point_to_point(f.tag)) {
      const announcement* its = nth_announced(f.tag, 0);
      if (!its) return {errc::protocol};
      announced_.erase(announced_.begin() + (its - announced_.data()));
    }
    transfer* t = posted_index_.find(f.tag);
    if (!t && f.what == frame::kind::eager) t = from_any(f.tag);
    if (t) {
      if (status s = compare(*t, f.call, f.bytes); !s.ok()) return s;
      t->leave_index();
      t->unlink();
      t->from_ = peer_;
      in_ = t;
      t->busy_ = this;
      return {};
    }
    if (status s = suspect(f); !s.ok()) return s;
    if (f.what == frame::kind::data || f.bytes > eager_limit) return {errc::protocol};
    if (unexpected_.held() + unexpected_queue::cost(f.bytes) > most_unexpected && !awaits_peer()) {
      held_ = f;
      return {};
    }
    filling_ = &unexpected_.add(f.tag, f.call, f.bytes);
    return {};
  }

  status heard_ready(const frame& f) {
    // If the first waiting message is small, or not announced yet, an earlier one with its tag is about to be
    // announced, and this ready frame is for that one.
    if (const transfer* t = find(not_ready_, f.tag); t && t->bytes_ > eager_limit && !to_announce(*t)) {
      if (differ(*t, f.tag, f.call)) return odd(*t, f.call, 0);
      release(f.tag);
      return {};
    }
    if (status s = suspect(f); !s.ok()) return s;
    if (readies_.size() >= most_readies) return {errc::protocol};
    readies_.push_back({f.tag, 0, f.call});
    return {};
  }

  status heard_announcement(const frame& f) {
    if (!tag::is_point_to_point(f.tag)) {  // its sender has waited for long, and wants lengths compared
      const transfer* its = posted_index_.find(f.tag);
      return its ? compare(*its, f.call, f.bytes) : status{};
    }
    if (announced_.size() >= most_readies) return {errc::protocol};
    const std::size_t before = number_announced(f.tag);
    announced_.push_back({f.tag, f.bytes});
    transfer* t = posted_index_.find(f.tag, before);
    transfer* any = t ? nullptr : from_any(f.tag);
    if (const transfer* its = t ? t : any)
      if (status s = compare(*its, 0, f.bytes); !s.ok()) return s;
    if (any) post(*any);
    return {};
  }

  // Completes a frame whose last byte has arrived.
  void arrive() {
    header_got_ = body_bytes_ = body_got_ = 0;
    if (in_) {
      finish(*std::exchange(in_, nullptr), status{});
    } else if (filling_) {
      unexpected_queue::message& u = *std::exchange(filling_, nullptr);
      u.complete = true;
      if (transfer* t = posted_index_.find(u.tag)) {
        copy_bytes(t->data_, u.bytes.data(), u.bytes.size());
        finish(*t, status{});
        unexpected_.remove(u);
      }
    }
  }

  P stream_;
  frame::encoded header_out_{}, header_in_{};
  std::size_t header_sent_ = frame::encoded_bytes, header_got_ = 0;
  std::size_t body_bytes_ = 0, body_got_ = 0;
  unexpected_queue::message* filling_ = nullptr;
  std::optional<frame> held_;  // a header whose message waits for room in the unexpected queue
  std::array<std::byte, 4096> dropped_{};
};

}  // namespace detail
}  // namespace tutti
