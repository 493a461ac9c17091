#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/buffer.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/fork_guard.hpp>
#include <tutti/core/log.hpp>
#include <tutti/os/aliased_pages.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/os/registrable.hpp>
#include <tutti/os/shm_segment.hpp>
#include <tutti/transport/shm/heap.hpp>

namespace tutti {

/// Memory of the caller that other ranks map. Its whole pages alias a block of this rank's heap. Those that it fills
/// only in part, at its begin and end, stay as they are, since other objects lie there, and have a copy in the block.
struct shm_registration {
  std::span<std::byte> memory;
  std::byte* block = nullptr;  ///< in the heap
  std::byte* image = nullptr;  ///< of the first byte of `memory`, in the block
  std::span<std::byte> whole;  ///< the pages that are aliased
  std::unique_ptr<os::aliased_pages> pages{};
  std::atomic<int> uses{0};  ///< operations in flight on it

  [[nodiscard]] bool overlaps(const void* p, std::size_t bytes) const noexcept {
    return tutti::overlap(p, bytes, memory.data(), memory.size());
  }
  [[nodiscard]] bool holds(const void* p, std::size_t bytes) const noexcept { return is_within(memory, p, bytes); }
  /// Returns true if [p, p + bytes), which this memory holds, lies in whole pages.
  [[nodiscard]] bool aliases(const void* p, std::size_t bytes) const noexcept { return is_within(whole, p, bytes); }
  /// Returns the address in the heap of a byte of this memory.
  [[nodiscard]] std::byte* image_of(const void* p) const noexcept {
    return image + (static_cast<const std::byte*>(p) - memory.data());
  }

 private:
  static std::uintptr_t address(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }
  static bool is_within(std::span<std::byte> all, const void* p, std::size_t bytes) noexcept {
    const std::uintptr_t at = address(p) - address(all.data());
    return at < all.size() && bytes <= all.size() - at;
  }
};

namespace detail {

/// The registered memory of all worlds of this process. Any thread.
class registered_ranges {
 public:
  /// Adds a range. Throws usage_error, with the words of the other, if it overlaps one.
  static void add(std::span<const std::byte> memory, std::string words) {
    const std::scoped_lock guard{mutex};
    for (const range& r : ranges())
      if (overlap(memory.data(), memory.size(), r.memory.data(), r.memory.size()))
        throw usage_error{"it overlaps memory that " + r.words + " has registered"};
    ranges().push_back({memory, std::move(words)});
  }
  static void remove(std::span<const std::byte> memory) noexcept {
    const std::scoped_lock guard{mutex};
    std::erase_if(ranges(), [&](const range& r) { return r.memory.data() == memory.data(); });
  }

 private:
  struct range {
    std::span<const std::byte> memory;
    std::string words;
  };
  struct process {
    fork_guard self;
    std::vector<range> ranges;
  };
  // Never destroyed: a world of static storage duration ends after main(). A child made by fork() has private copies.
  static std::vector<range>& ranges() {
    static process* of = new process;
    if (of->self.inherited()) of = new process;
    return of->ranges;
  }
  static inline std::mutex mutex;
};

}  // namespace detail

/// The registered memory of one rank. Called under the engine's lock.
class shm_registrations {
 public:
  /// Fewer whole pages than these are not worth it: such messages are copied once, and soon.
  static constexpr std::size_t least_pages = 4;

  /// `offset` is the heap's in the segment. Both outlive this object, as does the mapping of the heap at `base`.
  shm_registrations(os::shm_segment& segment, detail::shm_heap& heap, std::byte* base, std::uint64_t offset) noexcept
      : segment_(&segment), heap_(&heap), base_(base), offset_(offset) {}
  shm_registrations(const shm_registrations&) = delete;
  shm_registrations& operator=(const shm_registrations&) = delete;
  ~shm_registrations() { end_all(); }

  /// Registers memory; returns null if it has too few whole pages. Nobody may write to it meanwhile. `words` name the
  /// call in another's error. Throws usage_error for memory that cannot be mapped by others, and
  /// error{out_of_resources}; nothing has changed then.
  shm_registration* add(std::span<std::byte> memory, std::string words) {
    const std::size_t page = os::page_bytes();
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data()), end = begin + memory.size();
    const std::uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (last < first + least_pages * page) return nullptr;
    detail::registered_ranges::add(memory, std::move(words));
    const auto place = all_.end();
    auto made = place;
    try {
      const std::vector<os::memory_area> areas = os::areas_in(first, last);
      if (const std::string why = os::why_not_registrable(areas, first, last); !why.empty()) throw usage_error{why};
      made = all_.try_emplace(begin).first;
      shm_registration& r = made->second;
      r.memory = memory;
      r.whole = {memory.data() + (first - begin), last - first};
      // A page of its own at the begin keeps the aliases of two blocks apart in the segment, and the kernel from
      // merging their mappings.
      const std::uintptr_t covered = (end + page - 1) / page * page - begin / page * page;
      r.block = heap_->take(covered + page);
      const auto block = reinterpret_cast<std::uintptr_t>(r.block);
      r.image = r.block + ((block / page + 1) * page - block) + begin % page;
      std::byte* const image = r.image_of(r.whole.data());
      heap_->add_alias(r.whole.data(), r.whole.size(), image);
      r.pages = std::make_unique<os::aliased_pages>(*segment_, offset_ + static_cast<std::uint64_t>(image - base_),
                                                    image, r.whole.data(), r.whole.size(), areas);
      return &r;
    } catch (...) {
      detail::registered_ranges::remove(memory);
      if (made != place) {
        heap_->remove_alias(made->second.whole.data());
        if (made->second.block) heap_->give_back(made->second.block);
        all_.erase(made);
      }
      throw;
    }
  }

  /// Ends a registration without uses: its memory is private again.
  void remove(shm_registration& r) noexcept {
    heap_->remove_alias(r.whole.data());
    detail::registered_ranges::remove(r.memory);
    const auto at = all_.find(reinterpret_cast<std::uintptr_t>(r.memory.data()));
    if (r.pages->end()) {
      heap_->give_back(r.block);
    } else {  // nothing else may ever lie in the block, and the program may write to the pages from now on
      log_kept(r.memory.size());
      r.pages->outlive_segment();
      static_cast<void>(r.pages.release());
    }
    all_.erase(at);
  }
  /// Ends all of them.
  void end_all() noexcept {
    while (!all_.empty()) remove(all_.begin()->second);
  }

  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// Calls `take(registration)` for each that shares a byte with [p, p + bytes).
  template <class Take>
  void for_each_touched(const void* p, std::size_t bytes, Take take) {
    const auto begin = reinterpret_cast<std::uintptr_t>(p);
    auto at = all_.upper_bound(begin);
    if (at != all_.begin()) --at;
    for (; at != all_.end() && at->first < begin + bytes; ++at)
      if (at->second.overlaps(p, bytes)) take(at->second);
  }

 private:
  static void log_kept(std::size_t bytes) noexcept {
    try {
      tutti::detail::log(log_level::warning, "registered memory of " + os::format_bytes(bytes) +
                                                 " stays shared: there is too little memory for a private copy");
    } catch (const std::exception&) {  // out of memory
    }
  }

  os::shm_segment* segment_;
  detail::shm_heap* heap_;
  std::byte* base_;
  std::uint64_t offset_;
  std::map<std::uintptr_t, shm_registration> all_;  // by address
};

}  // namespace tutti
