#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/key_value_table.hpp>

namespace tutti {

/// A store in memory, for ranks that are threads of one process, and for tests. Models `store`. All ranks share one
/// object, which any number of threads may use at the same time.
class memory_store {
 public:
  memory_store() = default;
  explicit memory_store(store_limits limits) : table_(limits) {}
  memory_store(const memory_store&) = delete;
  memory_store& operator=(const memory_store&) = delete;

  void set(std::string_view key, std::span<const std::byte> value) {
    detail::check_entry(key, value);
    change(key, [&] { return table_.set(key, value); });
  }

  [[nodiscard]] std::vector<std::byte> get(std::string_view key, deadline until) {
    detail::check_key(key);
    const auto since = clock::now();
    std::unique_lock lock{mutex_};
    const std::vector<std::byte>* value = nullptr;
    if (!changed_.wait_until(lock, until, [&] { return (value = table_.find(key)) != nullptr; })) {
      detail::throw_get_timed_out(key, since, {});
    }
    return *value;
  }

  [[nodiscard]] std::optional<std::vector<std::byte>> try_get(std::string_view key) {
    detail::check_key(key);
    const std::lock_guard lock{mutex_};
    const auto* value = table_.find(key);
    return value != nullptr ? std::optional{*value} : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) {
    detail::check_key(key);
    std::int64_t total = 0;
    change(key, [&] { return table_.add(key, delta, total); });
    return total;
  }

  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired) {
    detail::check_entry(key, expected);
    detail::check_entry(key, desired);
    std::vector<std::byte> now;
    change(key, [&] {
      const auto answer = table_.compare_set(key, expected, desired);
      if (const auto* value = table_.find(key)) now = *value;
      return answer;
    });
    return now;
  }

  bool erase(std::string_view key) {
    detail::check_key(key);
    const std::lock_guard lock{mutex_};
    return table_.erase(key);
  }

 private:
  /// Calls `apply()`, which changes the table, under the mutex, and wakes the threads in get().
  template <class Change>
  void change(std::string_view key, Change&& apply) {
    {
      const std::lock_guard lock{mutex_};
      detail::throw_unless_done(apply(), key);
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  key_value_table table_;
};

}  // namespace tutti
