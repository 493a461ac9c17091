#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>

/// Records that a process keeps of its own calls of init().
namespace tutti::detail {

/// Set of the roll calls that this process has taken part in, by rank, since threads may join as different ranks. The
/// keys of one may still be in the store when the process comes for the next.
class attended_roll_calls {
 public:
  /// Adds a roll call. Returns false if it was there already.
  static bool note(std::uint64_t nonce, int rank) {
    static std::mutex mutex;
    static std::vector<std::pair<std::uint64_t, int>> known;
    const std::scoped_lock guard(mutex);
    if (std::ranges::find(known, std::pair{nonce, rank}) != known.end()) return false;
    constexpr std::size_t most = 1024;  // the most recent ones suffice
    if (known.size() == most) known.erase(known.begin());
    known.emplace_back(nonce, rank);
    return true;
  }
};

/// Registration of a call of init() in progress, so that a concurrent one for the same world in this process is
/// noticed.
class joining_thread {
 public:
  joining_thread(std::string place, int rank) : me_{std::move(place), rank} {
    const std::scoped_lock guard(all().mutex);
    for (const who& w : all().threads)
      if (w.place == me_.place) other_ = w.rank;
    all().threads.push_back(me_);
  }
  joining_thread(const joining_thread&) = delete;
  joining_thread& operator=(const joining_thread&) = delete;
  ~joining_thread() {
    const std::scoped_lock guard(all().mutex);
    all().threads.erase(std::ranges::find(all().threads, me_));
  }

  /// Throws usage_error if another call for the same world was in progress when this one began.
  void expect_alone() const {
    if (!other_) return;
    throw usage_error("another thread of this process joins the same world, as rank " + std::to_string(*other_) +
                      ", while this one does as rank " + std::to_string(me_.rank) +
                      ": a process is one rank; start one for each (tutti-run -n), or let threads be the ranks with "
                      "tutti::run_threads (tutti/bootstrap/threads.hpp)");
  }

 private:
  struct who {
    std::string place;
    int rank = 0;
    friend bool operator==(const who&, const who&) = default;
  };
  struct threads_under_way {
    std::mutex mutex;
    std::vector<who> threads;
  };
  static threads_under_way& all() {
    static threads_under_way them;
    return them;
  }

  who me_;
  std::optional<int> other_;
};

}  // namespace tutti::detail
