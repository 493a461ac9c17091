#pragma once
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/process.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/shm/export.hpp>
#include <tutti/transport/shm/import.hpp>

#include "support/forked_child.hpp"

// A world of forked processes, and what they and their parent need to know of each other.

namespace drive {

/// The roster's entry of this process.
inline tutti::rank_info myself(int rank) {
  tutti::rank_info p;
  p.rank = rank;
  p.host = tutti::os::hostname();
  p.pid = ::getpid();
  p.start_time = tutti::os::process_start_time(p.pid).value_or(0);
  p.memory_domain = "this machine";
  return p;
}

inline std::size_t open_descriptors() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

inline int lines_with(const std::string& file, const std::string& text) {
  std::ifstream in{file};
  int n = 0;
  for (std::string line; std::getline(in, line);)
    if (line.find(text) != std::string::npos) ++n;
  return n;
}
inline bool name_exists(const std::string& name) { return lines_with("/proc/net/unix", name) != 0; }

class shm_world {
 public:
  static constexpr int most = 64;
  enum stage : int { nowhere, registered, set_up };
  static constexpr int no_outcome = -1, fine = 0, stopped = -2, other = -3;

  struct record {
    std::atomic<int> pid, stage, code, peer;
    std::atomic<std::uint64_t> start_time;
    std::atomic<std::int64_t> ended_at;
    char message[600];
  };
  struct page {
    std::atomic<bool> named, stop;
    char name[128];
    std::array<record, most> ranks;
    std::array<std::atomic<std::uint64_t>, 16> words;  // for the tests
  };

  /// Runs `body(rank, world)` in n processes. An error that it throws is its outcome, as is a call of report().
  using body = std::function<void(int, shm_world&)>;
  explicit shm_world(int n, const body& run, tutti::shm_options options = {})
      : size_(n), options_(options), page_(new_page()) {
    if (options_.heap_bytes == 0) options_.heap_bytes = std::uint64_t{64} << 20;
    for (record& r : page_->ranks) r.code = no_outcome;
    for (int r = 0; r < n; ++r)
      children_.emplace_back([&, r] {
        child(r, run);
        return 0;
      });
  }
  shm_world(const shm_world&) = delete;
  ~shm_world() {
    children_.clear();  // kills and reaps what is left
    ::munmap(page_, sizeof(page));
  }

  // In the children.

  void publish(const std::string& name) {
    std::strncpy(page_->name, name.c_str(), sizeof page_->name - 1);
    page_->named = true;
  }

  /// The roll call of the test: waits until everybody has registered and a name is published.
  tutti::roster meet(int rank) {
    const tutti::rank_info me = myself(rank);
    record& mine = of(rank);
    mine.start_time = me.start_time;
    mine.pid = me.pid;
    mine.stage = registered;
    tutti::roster all;
    for (int r = 0; r < size_; ++r) {
      while (of(r).stage < registered || !page_->named) {
        if (page_->stop) throw std::runtime_error("stopped");
        std::this_thread::sleep_for(std::chrono::microseconds{100});
      }
      tutti::rank_info p = me;
      p.rank = r;
      p.local_rank = r;
      p.local_size = size_;
      p.pid = of(r).pid;
      p.start_time = of(r).start_time;
      all.push_back(p);
    }
    all.front().shared_memory = page_->name;
    return all;
  }

  tutti::shm_attachment take_place(int rank, tutti::duration limit = std::chrono::seconds{20}) {
    std::optional<tutti::shm_export> offer;
    if (rank == 0) offer.emplace(size_, options_);
    if (offer) publish(offer->name());
    const tutti::roster all = meet(rank);
    tutti::shm_attachment place = rank == 0 ? offer->hand_out(all, rank, tutti::after(limit))
                                            : tutti::shm_import(page_->name, all, rank, tutti::after(limit));
    of(rank).stage = set_up;
    return place;
  }

  void report(int rank, tutti::status s, const std::string& message = {}) {
    record& mine = of(rank);
    mine.ended_at = std::chrono::steady_clock::now().time_since_epoch().count();
    mine.peer = s.peer;
    std::strncpy(mine.message, message.c_str(), sizeof mine.message - 1);
    mine.code = static_cast<int>(s.code);
  }

  // In the parent.

  [[nodiscard]] std::atomic<std::uint64_t>& word(std::size_t i) { return page_->words[i]; }
  [[nodiscard]] record& of(int rank) { return page_->ranks[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string name() const { return page_->name; }
  [[nodiscard]] int size() const noexcept { return size_; }
  void signal(int rank, int number) { children_[static_cast<std::size_t>(rank)].signal(number); }
  void stop() { page_->stop = true; }

  /// Waits until the condition holds, for a bounded time.
  template <class Condition>
  static bool eventually(Condition holds, std::chrono::seconds limit = std::chrono::seconds{30}) {
    for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
    return holds();
  }
  bool everyone_is_set_up() {
    return eventually([&] {
      for (int r = 0; r < size_; ++r)
        if (of(r).stage != set_up) return false;
      return true;
    });
  }
  /// False if the rank hangs.
  bool ends(int rank) {
    return eventually([&] {
      siginfo_t info{};
      const auto pid = static_cast<id_t>(children_[static_cast<std::size_t>(rank)].pid());
      return ::waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
    });
  }
  /// What is wrong with the outcomes; empty when all ranks ended well.
  std::string trouble() {
    std::string text;
    for (int r = 0; r < size_; ++r) {
      if (!ends(r))
        text += "rank " + std::to_string(r) + " hangs. ";
      else if (of(r).code != fine)
        text += "rank " + std::to_string(r) + " ended with " + std::to_string(of(r).code) + " (peer " +
                std::to_string(of(r).peer) + "): " + of(r).message + ". ";
    }
    return text;
  }

 private:
  static page* new_page() {
    void* p = ::mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("no memory for a test");
    return new (p) page{};
  }

  void child(int rank, const body& run) {
    try {
      run(rank, *this);
      if (of(rank).code == no_outcome) report(rank, {});
    } catch (const tutti::error& e) {
      report(rank, e.cause(), e.what());
    } catch (const std::exception& e) {
      report(rank, {}, e.what());
      of(rank).code = page_->stop ? stopped : other;
    }
  }

  int size_;
  tutti::shm_options options_;
  page* page_;
  std::deque<tutti_test::forked_child> children_;
};

}  // namespace drive
