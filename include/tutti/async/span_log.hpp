#pragma once
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>

namespace tutti::detail {

/// A stretch of a program's time that traces show, and metrics count, beside the operations.
struct time_span {
  enum class kind : std::uint8_t {
    wait,    ///< a thread was blocked in wait() or sync_wait(); `middle` is not used
    bucket,  ///< from the last gradient of a bucket to its mean; `middle`: its launch
    pass     ///< from begin() to the end of finish(); `middle`: the call of finish()
  };
  kind what = kind::wait;
  deadline begun{}, middle{}, ended{};
  const char* call = "";        ///< awaited by the thread
  std::uint64_t number = 0;     ///< sequence of that call, 0 if it has none; index of the bucket; number of the pass
  int thread = 0;               ///< the kernel's number
  std::uint64_t pass = 0;       ///< of a bucket
  std::uint64_t bytes = 0;      ///< of a bucket
  std::uint64_t operation = 0;  ///< id of a bucket's last collective in the flight recorder, if it is known
};

/// Log of time spans, from any thread, until the receivers of operations take them. Drops what does not fit.
class span_log {
 public:
  void add(const time_span& s) noexcept {
    const std::scoped_lock guard{mutex_};
    if (spans_.size() < spans_.capacity()) spans_.push_back(s);
  }
  /// Gives all that was added since the last call, in the order of their ends, and takes an empty vector for it.
  void exchange(std::vector<time_span>& with) {
    with.clear();
    with.reserve(most);
    const std::scoped_lock guard{mutex_};
    spans_.swap(with);
  }

 private:
  static constexpr std::size_t most = 8192;
  std::mutex mutex_;
  std::vector<time_span> spans_ = room();
  static std::vector<time_span> room() {
    std::vector<time_span> v;
    v.reserve(most);
    return v;
  }
};

/// Holder of a span log, which is made when a trace or metrics are begun and then stays.
class span_log_place {
 public:
  /// Returns the log; null if nobody has made it, and nothing need be measured.
  [[nodiscard]] span_log* get() const noexcept { return log_.load(std::memory_order_acquire); }
  /// Makes the log, at most once. Not by two threads at a time. Throws std::bad_alloc.
  span_log& make() {
    if (!owner_) owner_ = std::make_unique<span_log>();
    log_.store(owner_.get(), std::memory_order_release);
    return *owner_;
  }

 private:
  std::unique_ptr<span_log> owner_;
  std::atomic<span_log*> log_{nullptr};
};

struct awaited_call {
  const char* name = "co_await";
  std::uint64_t sequence = 0;  ///< 0: none
};

/// Sets the call that this thread waits for, while it lives.
class waits_for {
 public:
  explicit waits_for(awaited_call c) noexcept : outer_(std::exchange(here, c)) {}
  waits_for(const waits_for&) = delete;
  waits_for& operator=(const waits_for&) = delete;
  ~waits_for() { here = outer_; }

  static inline thread_local awaited_call here{};

 private:
  awaited_call outer_;
};

/// Logs the time for which a thread is blocked, from construction to destruction, if `to` is not null.
class blocked_here {
 public:
  explicit blocked_here(span_log* to) noexcept : log_(to) {
    if (log_) [[unlikely]]
      begun_ = clock::now();
  }
  blocked_here(const blocked_here&) = delete;
  blocked_here& operator=(const blocked_here&) = delete;
  ~blocked_here() {
    if (log_) [[unlikely]]
      note();
  }

 private:
  [[gnu::noinline]] void note() const noexcept {
    static thread_local const int own = ::gettid();
    const awaited_call what = waits_for::here;
    log_->add({time_span::kind::wait, begun_, {}, clock::now(), what.name, what.sequence, own});
  }

  span_log* log_;
  deadline begun_{};
};

}  // namespace tutti::detail
