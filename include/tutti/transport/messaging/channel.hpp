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

/// The protocol of messages over one pipe.
template <byte_stream P>
class channel : public channel_base {
 public:
  template <class... Args>
  channel(pending_list& ready, early_places& places, Args&&... args)
      : channel_base(ready, places), stream_(std::forward<Args>(args)...) {}

  [[nodiscard]] P& stream() noexcept { return stream_; }

  status send(transfer& t) noexcept try {
    if (bye_) return {errc::peer_left};
    if (t.bytes_ > eager_limit)
      if (status s = suspect_earlier(t); !s.ok()) return s;
    stream_.open();
    // Not past an earlier message of its tag.
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

  /// Asks the peer whether it called the same in this operation, and tells of a message of it that waits for its
  /// receiver. It answers where it did not, or where it expects another length.
  status ask(const call_log::entry& call) noexcept try {
    if (bye_) return {};
    stream_.open();
    control_.push_back({frame::kind::question, call.tag, call.all & frame::most_bytes, call.short_id});
    for (const pending* p = not_ready_.front(); p; p = pending_list::after(*p)) {
      const auto& t = static_cast<const transfer&>(*p);
      if (!tag::of_one_operation(t.tag_, call.tag) || find(queue_, t.tag_)) continue;  // not past an earlier one
      control_.push_back({frame::kind::announce, t.tag_, t.bytes_, t.call_});
      break;
    }
    bool moved = false;
    return write_some(moved);
  } catch (const std::bad_alloc&) {
    return {errc::out_of_resources};
  }

  /// Also while a frame that was begun is not all written.
  [[nodiscard]] bool wants_to_write() const noexcept {
    return channel_base::wants_to_write() || header_sent_ < frame::encoded_bytes || !payload_.empty();
  }

 private:
  static constexpr std::size_t most_per_poll = 4 << 20;
  static constexpr std::size_t most_readies = 1 << 16;

  /// Large messages of users are told of before they are asked for: their receiver may take them from any peer.
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

  /// What follows with its tag waits with it, and does so already where it waited behind others before.
  void announce(transfer& t) noexcept {
    t.announced_ = true;
    not_ready_.push_front(t);
    while (transfer* behind = find(queue_, t.tag_)) not_ready_.push_back(*behind);
    if (take_ready(t.tag_)) release(t.tag_);
  }
  /// The first message of a tag that waits for its receiver goes on, and what follows up to the next that has to wait,
  /// with that one where it has to be announced.
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
      const auto some = payload_.first((std::min)(payload_.size(), most_per_poll));  // a fast reader would have it all
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

  /// Finds room for a message whose header is here; holds the stream back while there is none.
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
    // What is small or not announced follows one that is about to be, whose receiver this is.
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
    if (!tag::is_point_to_point(f.tag)) {  // it is told of because its sender has waited for long
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

  // The last byte of a frame is here.
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
  std::optional<frame> held_;  // a header whose message waits for room
  std::array<std::byte, 4096> dropped_{};
};

}  // namespace detail
}  // namespace tutti
