#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include <tutti/transport/sim/schedule.hpp>

namespace tutti {

/// Byte stream from one simulated rank to another: in order, but late and in pieces of any size. No more bytes are in
/// flight than the stream holds. Delay, capacity and pieces are drawn when the stream is made.
class sim_stream {
 public:
  /// Draws the properties of the stream. On average, `rough` of 8 streams are narrow and cut what they move into small
  /// pieces.
  sim_stream(sim_schedule& schedule, int from, int to, std::uint64_t rough)
      : schedule_(&schedule), from_(from), to_(to), slowness_(schedule.random().one_of({0, 0, 3, 30, 300})) {
    sim_random& r = schedule.random();
    if (r.below(8) >= rough) return;
    capacity_ = static_cast<std::size_t>(r.one_of({1, 20, 100, 4096, 65536}));
    whole_ = r.one_of({1, 2, 16});
  }

  /// Takes some bytes of `a`, and then of `b`, and returns their number. 0 means that the stream is full; the writer is
  /// woken when there is room. May throw bad_alloc.
  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) {
    const std::size_t wanted = a.size() + b.size(), held = bytes_.size() - begin_,
                      capacity = (std::max)(capacity_, wanted / 8);
    const std::size_t n = held < capacity ? portion((std::min)(capacity - held, wanted), wanted) : 0;
    writer_waits_ = n == 0;
    if (n == 0) return 0;
    const auto first = a.first((std::min)(n, a.size())), second = b.first(n - first.size());
    bytes_.insert(bytes_.end(), first.begin(), first.end());
    bytes_.insert(bytes_.end(), second.begin(), second.end());
    written_ += n;
    last_arrival_ = (std::max)(last_arrival_, schedule_->now() + schedule_->random().below(slowness_ + 1));
    coming_.push_back({last_arrival_, written_});
    schedule_->wake_at(last_arrival_, to_);
    note(1, n);
    return n;
  }

  /// Copies some of the bytes that have arrived, and returns their number.
  std::size_t read(std::span<std::byte> into) {
    while (!coming_.empty() && coming_.front().step <= schedule_->now()) {
      arrived_ = coming_.front().until;
      coming_.pop_front();
    }
    const std::size_t n = portion((std::min)(into.size(), static_cast<std::size_t>(arrived_ - read_)), into.size());
    if (n == 0) return 0;
    std::memcpy(into.data(), bytes_.data() + begin_, n);
    begin_ += n;
    read_ += n;
    if (begin_ == bytes_.size()) {
      bytes_.clear();
      begin_ = 0;
    } else if (begin_ > bytes_.size() / 2) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
      begin_ = 0;
    }
    if (writer_waits_) schedule_->wake(from_);
    note(2, n);
    return n;
  }

  /// Returns true if all that was written has been read.
  [[nodiscard]] bool drained() const noexcept { return read_ == written_; }
  [[nodiscard]] std::uint64_t last_arrival() const noexcept { return last_arrival_; }

 private:
  struct burst {
    std::uint64_t step, until;
  };

  // Returns a part of what can be moved now; not a small part of a long message, which would take a step for each byte.
  std::size_t portion(std::size_t most, std::size_t wanted) noexcept {
    sim_random& r = schedule_->random();
    if (most <= 1 || r.one_in(whole_)) return most;
    return (std::min)(most, std::max<std::size_t>(wanted / 16, r.below(r.one_of({1, 8, 64, 4096})) + 1));
  }
  void note(std::uint64_t what, std::size_t n) noexcept {
    schedule_->note(what << 16 | static_cast<std::uint64_t>(from_) << 8 | static_cast<std::uint64_t>(to_), n);
  }

  sim_schedule* schedule_;
  int from_, to_;
  std::size_t capacity_ = std::size_t{1} << 20;
  std::uint64_t slowness_;        // the most steps that a burst takes
  std::uint64_t whole_ = 1;       // one of this number of pieces is not cut
  std::vector<std::byte> bytes_;  // what was not read yet, from begin_ on
  std::size_t begin_ = 0;
  std::uint64_t written_ = 0, arrived_ = 0, read_ = 0, last_arrival_ = 0;
  std::deque<burst> coming_;
  bool writer_waits_ = false;
};

}  // namespace tutti
