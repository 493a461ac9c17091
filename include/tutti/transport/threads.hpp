#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/messaging/mesh.hpp>
#include <tutti/transport/shm/control_block.hpp>
#include <tutti/transport/shm/ring_stream.hpp>

namespace tutti {

/// Common state of the ranks of a threads world; made once, and given to every rank.
class threads_hub {
 public:
  explicit threads_hub(int size) : size_(check(size)), memory_(shm_control_block::bytes(size)) {}

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] shm_control_block area() const noexcept { return {memory_.get(), size_}; }

  /// Returns zeroed memory, aligned to 4096 bytes, that lives until it is freed or the hub ends, because a peer may
  /// still read what a rank left behind. Throws bad_alloc. Any thread may call it.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    block fresh{bytes};
    std::scoped_lock guard(mutex_);
    blocks_.push_back(std::move(fresh));
    return blocks_.back().get();
  }
  void deallocate(std::byte* p) noexcept {
    std::scoped_lock guard(mutex_);
    for (block& b : blocks_) {
      if (b.get() != p) continue;
      std::swap(b, blocks_.back());
      blocks_.pop_back();
      return;
    }
  }

 private:
  /// Block of zeroed pages.
  class block {
   public:
    explicit block(std::size_t bytes)
        : first_(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{4096}))) {
      std::memset(first_, 0, bytes);
    }
    block(block&& other) noexcept : first_(std::exchange(other.first_, nullptr)) {}
    block& operator=(block&& other) noexcept {
      std::swap(first_, other.first_);
      return *this;
    }
    ~block() { ::operator delete(first_, std::align_val_t{4096}); }
    [[nodiscard]] std::byte* get() const noexcept { return first_; }

   private:
    std::byte* first_;
  };

  static int check(int size) {
    if (size < 1) throw usage_error("a world of " + std::to_string(size) + " ranks: at least 1 is needed");
    return size;
  }

  int size_;
  block memory_;
  std::mutex mutex_;
  std::vector<block> blocks_;
};

/// Transport of a world whose ranks are threads of one process. Every rank can access every address, so that all
/// buffers count as mapped.
class threads_transport : public mesh<ring_stream> {
 public:
  threads_transport(std::shared_ptr<threads_hub> hub, int rank)
      : mesh(rank, hub->size()), hub_(std::move(hub)), area_(hub_->area()), bell_(area_, rank) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank) connect(peer, area_, rank, peer, bell_);
  }
  threads_transport(const threads_transport&) = delete;
  threads_transport& operator=(const threads_transport&) = delete;
  ~threads_transport() { leave(); }

  bool poll() noexcept {
    if (const status s = area_.failure(); !s.ok()) fail_all(s);
    return poll_channels([this](const status& s) { abort(s); });
  }
  void tick(deadline) noexcept {
    for (int r = 0; r < size(); ++r)
      if (r != rank() && area_.block(r).left.load(std::memory_order_acquire) != 0 && still_needs(r))
        abort({errc::peer_left, 0, r, 0});
  }
  void abort(status why) noexcept {
    area_.fail(why);
    fail_all(area_.failure());
    bell_.ring_all();
  }
  void leave() noexcept {
    area_.block(rank()).left.store(1, std::memory_order_release);
    bell_.ring_all();
  }
  void note_issue(std::uint64_t sequence) noexcept {
    area_.block(rank()).issued.store(sequence, std::memory_order_relaxed);
  }

  /// Returns the rank that an operation waits for. `sequence` is its number, if the world has called it; else 0.
  [[nodiscard]] int waiting_for(const routine::promise_type* work, std::uint64_t sequence = 0) const noexcept {
    const int behind = area_.furthest_behind(sequence);
    return behind >= 0 ? behind : channel_waits_for(work);
  }
  [[nodiscard]] std::string describe(int peer) const {
    return "rank " + std::to_string(peer) + " (a thread of this process), last seen at #" +
           std::to_string(area_.block(peer).issued.load());
  }
  [[nodiscard]] double ranks_per_core() const noexcept { return ranks_per_core_; }

  void prepare_park() noexcept { bell_.prepare(shm_control_block::sleep::on_futex); }
  void park(duration d) noexcept { bell_.sleep(d); }
  void finish_park() noexcept { bell_.finish(); }
  void unpark() noexcept { bell_.wake_self(); }

  [[nodiscard]] bool maps(int) const noexcept { return true; }
  [[nodiscard]] std::byte* allocate(std::size_t bytes) { return hub_->allocate(bytes); }
  void deallocate(std::byte* p) noexcept { hub_->deallocate(p); }
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p);
  }
  [[nodiscard]] std::byte* resolve(int, std::uint64_t where, std::size_t = 1) const noexcept {
    return reinterpret_cast<std::byte*>(where);
  }
  [[nodiscard]] int process_of(int) const noexcept { return 0; }
  /// Returns false: a thread does not end without its rank, which finishes what it does.
  [[nodiscard]] bool gone(int) const noexcept { return false; }
  void ring(int peer) noexcept { bell_.ring(peer); }

 private:
  std::shared_ptr<threads_hub> hub_;
  shm_control_block area_;
  detail::doorbell bell_;
  // It is read once, because it comes from files.
  double ranks_per_core_ = static_cast<double>(size()) / static_cast<double>(os::usable_cpus());
};

}  // namespace tutti
