#pragma once
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/op_pool.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/os/process_memory.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/transport/threads.hpp>

#include <support/expect.hpp>
#include <support/on_threads.hpp>

namespace links {

/// One rank that runs algorithms directly, with neither a backend nor a communicator.
template <tutti::transport T = tutti::threads_transport>
class rank final : public tutti::op_owner {
 public:
  rank(std::shared_ptr<tutti::threads_hub> hub, int number)
      : engine_(std::make_shared<tutti::engine>()),
        driver_(engine_, std::make_unique<T>(hub, number)),
        members_{0, number, hub->size(), {}} {}

  [[nodiscard]] int number() const noexcept { return members_.rank; }
  [[nodiscard]] int size() const noexcept { return members_.size; }
  [[nodiscard]] const tutti::group& members() const noexcept { return members_; }
  [[nodiscard]] tutti::algo::shm_group& shm_group() noexcept { return group_; }
  [[nodiscard]] T& link() noexcept { return driver_.link(); }

  /// Starts `make(link)`; all ranks start the same ones in the same order.
  template <class Make>
  tutti::op start(Make make, tutti::duration limit = std::chrono::seconds(60)) {
    auto guard = engine_->lock();
    tutti::op_state& s = pool_.acquire();
    const auto now = tutti::clock::now();
    s.owner = this;
    s.info = {"algorithm", 0, tutti::dtype::u8, ++sequence_, std::source_location::current(), now, now + limit, false};
    driver_.link().note_issue(sequence_);
    tutti::routine work = make(tutti::group_link<T>{driver_.link(), members_, sequence_});
    driver_.enter(s);
    std::move(work).start(s);
    driver_.started();
    return tutti::op{s};
  }
  template <class Make>
  void run(Make make) {
    start(make).wait();
  }
  void abort() {
    {
      auto guard = engine_->lock();
      driver_.link().abort({tutti::errc::aborted, 0, -1, 0});
    }
    engine_->notify();
  }

  void release(tutti::op_state& s) noexcept override { pool_.release(s); }
  void failed(tutti::status& why) noexcept override { driver_.link().abort(why); }
  tutti::error describe(const tutti::op_state& s) const override {
    return {s.result, "algorithm #" + std::to_string(s.info.sequence) +
                          " failed: " + tutti::category().message(static_cast<int>(s.result.code)) + ", peer " +
                          std::to_string(s.result.peer)};
  }
  tutti::engine& engine() noexcept override { return *engine_; }

 private:
  std::shared_ptr<tutti::engine> engine_;
  tutti::driver<T> driver_;
  tutti::group members_;
  tutti::algo::shm_group group_;
  tutti::op_pool pool_;
  std::uint64_t sequence_ = 0;
};

/// Runs `f(rank)` on `size` threads and throws what the first of them threw.
template <tutti::transport T = tutti::threads_transport, class F>
void run(int size, F f) {
  const auto hub = std::make_shared<tutti::threads_hub>(size);
  tutti_test::on_threads(size, [&](int r) { return rank<T>{hub, r}; }, f);
}

using tutti_test::expect;

/// Ranks map only what the transport has allocated, as between processes.
class staging_transport : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    std::byte* p = threads_transport::allocate(bytes);
    mine_.emplace(p, bytes);
    return p;
  }
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    for (const auto& [begin, size] : mine_)
      if (p >= begin && static_cast<const std::byte*>(p) + bytes <= begin + size)
        return threads_transport::locate(p, bytes);
    return std::nullopt;
  }

 private:
  std::set<std::pair<const std::byte*, std::size_t>> mine_;
};

/// Whether this machine lets a process read its own memory by the kernel, as it does but for some filters.
inline bool kernel_copies_here() {
  const char own[2] = {};
  if (tutti::os::kernel_copies(own, sizeof own)) return true;
  MESSAGE("not looked at: this machine does not let processes be read");
  return false;
}

/// A word over the ranks: its reduction shows the order in which the operands were taken.
struct word {
  std::uint64_t letters;
  std::uint32_t length, unused;
  friend bool operator==(const word&, const word&) = default;
};
struct append {
  word operator()(const word& a, const word& b) const noexcept {
    return {a.letters << (4 * b.length) | b.letters, a.length + b.length, 0};
  }
};
inline word letter(int rank) noexcept { return {static_cast<std::uint64_t>(rank) + 1, 1, 0}; }
/// The word of `size` letters that begins with `first` and goes around.
inline word spelled(int first, int size) noexcept {
  word w = letter(first % size);
  for (int i = 1; i < size; ++i) w = append{}(w, letter((first + i) % size));
  return w;
}

/// What the ranks of one machine share, where rank r is on machine `placed[r]`.
template <class Rank>
tutti::algo::node_group on_machines(const Rank& me, const std::vector<int>& placed) {
  return {me.members(), tutti::algo::node_map::of(placed, me.number())};
}

template <class V>
tutti::const_buffer in(const V& v) {
  return tutti::erase_type(std::span<const typename V::value_type>{v});
}
template <class V>
tutti::buffer out(V& v) {
  return tutti::erase_type(std::span<typename V::value_type>{v});
}

/// A list of `count` elements in all.
template <class E>
tutti::buffer_list list(const std::vector<std::span<E>>& chunks, std::size_t count) {
  const auto item = [](const void* items, std::size_t i) noexcept {
    return std::as_writable_bytes(static_cast<const std::span<E>*>(items)[i]);
  };
  return {chunks.data(), chunks.size(), count, sizeof(E), tutti::erase_type(std::span<E>{}).type, item};
}

}  // namespace links
