#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/shm_segment.hpp>

namespace tutti::detail {

/// Allocates from one rank's stretch of a shared segment; only that rank's process does. The books are private memory,
/// so no peer can corrupt them.
/// Not synchronized: a transport calls it under its engine's lock. First fit, neighbours merge. Of n blocks: O(n) plus
/// zeroing, and O(log n) to locate().
class shm_heap {
 public:
  static constexpr std::size_t alignment = 4096;

  /// Owns [offset, offset + bytes) of `segment`, which is mapped at `base`; both outlive the heap.
  shm_heap(os::shm_segment& segment, std::byte* base, std::uint64_t offset, std::uint64_t bytes) noexcept
      : segment_(&segment), base_(base), offset_(offset), bytes_(bytes / alignment * alignment) {}
  shm_heap(const shm_heap&) = delete;
  shm_heap& operator=(const shm_heap&) = delete;

  /// Zeroed memory, aligned to 4096 bytes, whose pages are taken now: touching it later cannot fault.
  /// Throws error{out_of_resources} when the machine or this stretch has no room left.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if (bytes > bytes_) fail_full(bytes);
    const std::uint64_t wanted = (std::max<std::uint64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    std::size_t i = 0;
    while (i < blocks_.size() && (blocks_[i].used || blocks_[i].bytes < wanted)) ++i;
    if (i == blocks_.size()) {
      if (bytes_ - top() < wanted) fail_full(bytes);
      reserve(top() + wanted);
      blocks_.push_back({top(), wanted, true});
    } else {
      const block rest{blocks_[i].at + wanted, blocks_[i].bytes - wanted, false};
      if (rest.bytes != 0) blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
      blocks_[i] = {blocks_[i].at, wanted, true};
    }
    const std::uint64_t at = blocks_[i].at;
    // What nobody had before is zero already.
    if (at < dirty_) std::memset(base_ + at, 0, (std::min)(wanted, dirty_ - at));
    dirty_ = (std::max)(dirty_, at + wanted);
    return base_ + at;
  }

  /// Gives back what allocate() returned; every other pointer is ignored.
  void deallocate(std::byte* p) noexcept {
    std::size_t i = block_of(position(p));
    if (i == blocks_.size() || blocks_[i].at != position(p) || !blocks_[i].used) return;
    blocks_[i].used = false;
    if (i + 1 < blocks_.size() && !blocks_[i + 1].used) swallow_next(i);
    if (i > 0 && !blocks_[i - 1].used) swallow_next(--i);
    if (i + 1 == blocks_.size()) blocks_.pop_back();
  }

  /// Where [p, p + bytes) lies in this rank's stretch, if all of it is inside one allocation.
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    const std::uint64_t at = position(p);
    const std::size_t i = block_of(at);
    if (i == blocks_.size() || !blocks_[i].used) return std::nullopt;
    if (bytes > blocks_[i].at + blocks_[i].bytes - at) return std::nullopt;
    return at;
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// How much of the stretch has pages; grows in steps, never shrinks.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return reserved_; }

 private:
  struct block {
    std::uint64_t at, bytes;
    bool used;
  };
  static constexpr std::uint64_t least_step = 1U << 20, most_step = 64U << 20;

  /// Nothing is in use from here on.
  [[nodiscard]] std::uint64_t top() const noexcept {
    return blocks_.empty() ? 0 : blocks_.back().at + blocks_.back().bytes;
  }
  /// The block around a position, or how many there are when it is in none.
  [[nodiscard]] std::size_t block_of(std::uint64_t at) const noexcept {
    if (at >= top()) return blocks_.size();
    const auto next = std::upper_bound(blocks_.begin(), blocks_.end(), at,
                                       [](std::uint64_t position, const block& b) { return position < b.at; });
    return static_cast<std::size_t>(next - blocks_.begin()) - 1;  // the first block begins at 0
  }
  void swallow_next(std::size_t i) noexcept {
    blocks_[i].bytes += blocks_[i + 1].bytes;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }

  [[nodiscard]] std::uint64_t position(const void* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_);
  }

  void reserve(std::uint64_t end) {
    if (end <= reserved_) return;
    const std::uint64_t step = std::clamp(reserved_ / 4, least_step, most_step);
    const std::uint64_t wish = (std::max)(end, reserved_ + step);
    const std::uint64_t generous = (std::min)(bytes_, (wish + least_step - 1) / least_step * least_step);
    try {
      segment_->reserve(offset_ + reserved_, generous - reserved_);
      reserved_ = generous;
    } catch (const error&) {
      if (generous == end) throw;
      segment_->reserve(offset_ + reserved_, end - reserved_);
      reserved_ = end;
    }
  }

  [[noreturn]] void fail_full(std::size_t bytes) const {
    const std::string wish = "no room for " + os::format_bytes(bytes) + " in this rank's shared memory: ";
    if (bytes > bytes_)
      throw error{{errc::out_of_resources},
                  wish + "it is more than the " + os::format_bytes(bytes_) + " that a rank may allocate at all"};
    std::uint64_t in_use = 0;
    for (const block& b : blocks_) in_use += b.used ? b.bytes : 0;
    throw error{{errc::out_of_resources},
                wish + os::format_bytes(in_use) + " of " + os::format_bytes(bytes_) + " are in use; free some"};
  }

  os::shm_segment* segment_;
  std::byte* base_;
  std::uint64_t offset_, bytes_;
  std::uint64_t dirty_ = 0;     // pages from here on were never handed out
  std::uint64_t reserved_ = 0;  // pages up to here are taken
  std::vector<block> blocks_;   // without gaps, by position; the last one is used, and no two free ones are neighbours
};

}  // namespace tutti::detail
