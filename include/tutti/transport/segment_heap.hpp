#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <tutti/core/error.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/shm_segment.hpp>

namespace tutti {

/// Allocates from one rank's stretch of a shared segment; only that rank's process does. The books are private memory,
/// so no peer can corrupt them.
/// Not synchronized: a transport calls it under its engine's lock. First fit, neighbours merge; O(log n) plus zeroing.
class segment_heap {
 public:
  static constexpr std::size_t alignment = 4096;

  /// Owns [offset, offset + bytes) of `segment`, which is mapped at `base`; both outlive the heap.
  segment_heap(os::shm_segment& segment, std::byte* base, std::uint64_t offset, std::uint64_t bytes) noexcept
      : segment_(&segment), base_(base), offset_(offset), bytes_(bytes / alignment * alignment) {}
  segment_heap(const segment_heap&) = delete;
  segment_heap& operator=(const segment_heap&) = delete;

  /// Zeroed memory, aligned to 4096 bytes, whose pages are taken now: touching it later cannot fault.
  /// Throws error{out_of_resources} when the machine or this stretch has no room left.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if (bytes > bytes_) fail_full(bytes);
    const std::uint64_t wanted = (std::max<std::uint64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    const auto freed =
        std::find_if(freed_.begin(), freed_.end(), [wanted](const auto& block) { return block.second >= wanted; });
    const std::uint64_t at = freed == freed_.end() ? top_ : freed->first;
    if (freed == freed_.end()) {
      if (bytes_ - top_ < wanted) fail_full(bytes);
      reserve(top_ + wanted);
    }
    used_.emplace(at, wanted);  // from here on nothing throws
    if (freed == freed_.end()) {
      top_ += wanted;
    } else {
      auto rest = freed_.extract(freed);
      rest.key() += wanted;
      rest.mapped() -= wanted;
      if (rest.mapped() != 0) freed_.insert(std::move(rest));
    }
    // What nobody had before is zero already.
    if (at < dirty_) std::memset(base_ + at, 0, std::min(wanted, dirty_ - at));
    dirty_ = std::max(dirty_, at + wanted);
    return base_ + at;
  }

  /// Gives back what allocate() returned; every other pointer is ignored.
  void deallocate(std::byte* p) noexcept {
    const auto block = used_.find(position(p));
    if (block == used_.end()) return;
    auto node = used_.extract(block);  // inserting a node allocates nothing
    const auto next = freed_.lower_bound(node.key());
    if (next != freed_.end() && node.key() + node.mapped() == next->first) {
      node.mapped() += next->second;
      freed_.erase(next);
    }
    const auto after = freed_.lower_bound(node.key());
    if (after != freed_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == node.key()) {
        node.key() = before->first;
        node.mapped() += before->second;
        freed_.erase(before);
      }
    }
    if (node.key() + node.mapped() == top_)
      top_ = node.key();
    else
      freed_.insert(std::move(node));
  }

  /// Where [p, p + bytes) lies in this rank's stretch, if all of it is inside one allocation.
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    const std::uint64_t at = position(p);
    auto block = used_.upper_bound(at);
    if (at >= top_ || block == used_.begin()) return std::nullopt;
    --block;
    const std::uint64_t into = at - block->first;
    if (into >= block->second || bytes > block->second - into) return std::nullopt;
    return at;
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// How much of the stretch has pages; grows in steps, never shrinks.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return reserved_; }

 private:
  static constexpr std::uint64_t least_step = 1U << 20, most_step = 64U << 20;

  [[nodiscard]] std::uint64_t position(const void* p) const noexcept {
    return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(base_);
  }

  void reserve(std::uint64_t end) {
    if (end <= reserved_) return;
    const std::uint64_t step = std::clamp(reserved_ / 4, least_step, most_step);
    const std::uint64_t wish = std::max(end, reserved_ + step);
    const std::uint64_t generous = std::min(bytes_, (wish + least_step - 1) / least_step * least_step);
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
    std::uint64_t in_use = 0;
    for (const auto& block : used_) in_use += block.second;
    throw error{{errc::out_of_resources},
                "no room for " + os::format_bytes(bytes) +
                    " in this rank's shared memory: " + os::format_bytes(in_use) + " of " + os::format_bytes(bytes_) +
                    " are in use; free some, or raise shm_options::heap_bytes"};
  }

  using blocks = std::map<std::uint64_t, std::uint64_t>;  // position, bytes

  os::shm_segment* segment_;
  std::byte* base_;
  std::uint64_t offset_, bytes_;
  std::uint64_t top_ = 0;       // nothing is in use from here on
  std::uint64_t dirty_ = 0;     // pages from here on were never handed out
  std::uint64_t reserved_ = 0;  // pages up to here are taken
  blocks used_, freed_;
};

}  // namespace tutti
