#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <tutti/config.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/watch/record.hpp>

namespace tutti::watch {

/// Copies a text into an array of characters and ends it by a zero; of one that is too long, the end.
template <std::size_t N>
void put_text(std::array<char, N>& to, std::string_view text) noexcept {
  if (text.size() >= N) text.remove_prefix(text.size() - N + 1);
  to.fill(0);
  text.copy(to.data(), text.size());
}
template <std::size_t N>
std::string_view text_of(const std::array<char, N>& from) noexcept {
  const auto* const end = static_cast<const char*>(std::memchr(from.data(), 0, N));
  return {from.data(), end ? static_cast<std::size_t>(end - from.data()) : N};
}

/// Place in the user's code from which operations were issued.
struct call_site {
  std::uint32_t line = 0;
  std::array<char, 124> file{};
  std::array<char, 128> function{};
};

/// Clock readings, which one thread replaces while others read them.
class shared_reading {
 public:
  void write(const os::clock_reading& r) noexcept {
    const std::uint64_t n = version_.load(std::memory_order_relaxed);
    version_.store(n + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    ticks_.store(r.ticks, std::memory_order_relaxed);
    steady_.store(r.steady, std::memory_order_relaxed);
    wall_.store(r.wall, std::memory_order_relaxed);
    version_.store(n + 2, std::memory_order_release);
  }
  /// Returns the last readings; all zero if they were being replaced, again and again.
  [[nodiscard]] os::clock_reading read() const noexcept {
    for (int tries = 0; tries < 1000; ++tries) {
      const std::uint64_t n = version_.load(std::memory_order_acquire);
      const os::clock_reading r{ticks_.load(std::memory_order_relaxed), steady_.load(std::memory_order_relaxed),
                                wall_.load(std::memory_order_relaxed)};
      std::atomic_thread_fence(std::memory_order_acquire);
      if (n % 2 == 0 && version_.load(std::memory_order_relaxed) == n) return r;
    }
    return {};
  }

 private:
  std::atomic<std::uint64_t> version_{0}, ticks_{0};
  std::atomic<std::int64_t> steady_{0}, wall_{0};
};

/// Head of a recording: its rank and world.
struct recording_head {
  static constexpr std::array<char, 8> sign{'t', 'u', 't', 't', 'i', ' ', 'f', 'r'};
  static constexpr std::uint32_t known_version = 1;
  static constexpr const char* memory_name = "tutti-flight";  ///< of the memfd of a recording that is no file

  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::int32_t rank = 0, size = 1;
  std::uint32_t number = 1;      ///< of the world, among those of its process
  std::uint64_t world = 0;       ///< equal on all ranks of a world, and on no others
  std::uint64_t start_time = 0;  ///< of the process
  std::int32_t pid = 0;
  std::array<char, 64> host{};
  std::array<char, 64> boot{};  ///< kernel_and_pids() of the process
  std::array<char, 128> job{};
  shared_reading first, last;
  std::atomic<std::uint64_t> left{0};                     ///< ticks at which the rank left its world
  std::atomic<std::uint64_t> failed{0};                   ///< ticks at which the world failed
  std::atomic<std::int32_t> failure{0}, failed_peer{-1};  ///< errc, and world rank
  std::atomic<std::uint32_t> sites{1}, group_words{0};

  /// Returns true for the head of a recording of this version, whose rank and size can be relied on.
  [[nodiscard]] bool is_recording() const noexcept {
    constexpr std::int32_t most_ranks = 1 << 20;
    return magic == sign && version == known_version && size <= most_ranks && rank >= 0 && rank < size;
  }
};

/// Recording of one rank of one world: the memory of a flight recorder, which may be a file. Groups are lists of
/// numbers: context, size, and the world ranks of the members. Site 0 stands for all that are not known.
struct recording {
  static constexpr std::size_t most_sites = 512, most_group_words = std::size_t{1} << 14, records_kept = 4096;

  recording_head head;
  alignas(64) std::array<std::uint32_t, most_group_words> groups;
  std::array<call_site, most_sites> sites;
  std::array<record, records_kept> records;
};

}  // namespace tutti::watch
