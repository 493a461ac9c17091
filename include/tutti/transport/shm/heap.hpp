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

/// Allocator of one rank's part of a shared segment, for that rank's process only. Its bookkeeping is private memory,
/// which no peer can corrupt. It takes the first block that fits; free neighbours merge. With n blocks, allocate()
/// takes O(n) plus the zeroing, locate() O(log n). Not synchronized: a transport calls it under its engine's lock.
class shm_heap {
 public:
  static constexpr std::size_t alignment = 4096;

  /// Manages [offset, offset + bytes) of `segment`, a range that is mapped at `base`. Segment and mapping outlive the
  /// heap.
  shm_heap(os::shm_segment& segment, std::byte* base, std::uint64_t offset, std::uint64_t bytes) noexcept
      : segment_(&segment), base_(base), offset_(offset), bytes_(bytes / alignment * alignment) {}
  shm_heap(const shm_heap&) = delete;
  shm_heap& operator=(const shm_heap&) = delete;

  /// Returns zeroed memory, aligned to 4096 bytes, whose pages are reserved now: touching it later cannot fault. Throws
  /// error{out_of_resources} if the machine, or this part of the segment, has no room left.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    const std::uint64_t zeroed_from = dirty_;
    std::byte* const p = take(bytes);
    const std::uint64_t at = position(p);
    // Memory that was never handed out is zero already.
    if (at < zeroed_from) std::memset(p, 0, (std::min)(whole_pages(bytes), zeroed_from - at));
    return p;
  }

  /// Does the same, but the memory may hold what was freed before: for a caller that overwrites all of it.
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    if (bytes > bytes_) fail_full(bytes);
    const std::uint64_t wanted = whole_pages(bytes);
    std::size_t i = 0;
    while (i < blocks_.size() && (blocks_[i].used || blocks_[i].bytes < wanted)) ++i;
    if (i == blocks_.size()) {
      if (bytes_ - top() < wanted) fail_full(bytes);
      reserve(top() + wanted);
      blocks_.push_back({top(), wanted, true});
    } else {
      if (blocks_[i].holes) segment_->reserve(offset_ + blocks_[i].at, wanted);
      const block rest{blocks_[i].at + wanted, blocks_[i].bytes - wanted, false, blocks_[i].holes};
      if (rest.bytes != 0) blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
      blocks_[i] = {blocks_[i].at, wanted, true};
    }
    const std::uint64_t at = blocks_[i].at;
    dirty_ = (std::max)(dirty_, at + wanted);
    return base_ + at;
  }

  /// Frees memory that allocate() returned; ignores every other pointer.
  void deallocate(std::byte* p) noexcept {
    if (const std::size_t i = block_at(p); i != blocks_.size()) free_block(i, pages::kept);
  }
  /// Does the same, and gives the pages back to the machine: for large memory whose caller may need no other.
  void give_back(std::byte* p) noexcept {
    if (const std::size_t i = block_at(p); i != blocks_.size()) free_block(i, pages::given_back);
  }

  /// Returns the offset of [p, p + bytes) in this part, if all of it lies inside one allocation or one alias.
  [[nodiscard]] std::optional<std::uint64_t> locate(const void* p, std::size_t bytes) const noexcept {
    const std::uint64_t at = position(p);
    const std::size_t i = block_of(at);
    if (i == blocks_.size() || !blocks_[i].used) return aliases_.empty() ? std::nullopt : locate_alias(p, bytes);
    if (bytes > blocks_[i].at + blocks_[i].bytes - at) return std::nullopt;
    return at;
  }

  /// Lets locate() find [p, p + bytes), pages of this process that map this part at `memory`, which lies in an
  /// allocation. Throws std::bad_alloc.
  void add_alias(const void* p, std::size_t bytes, const std::byte* memory) {
    const alias fresh{address(p), bytes, position(memory)};
    aliases_.insert(std::upper_bound(aliases_.begin(), aliases_.end(), fresh.begin, starts_after), fresh);
  }
  void remove_alias(const void* p) noexcept {
    std::erase_if(aliases_, [&](const alias& a) { return a.begin == address(p); });
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns the number of bytes of this part that have pages, but for what was given back between blocks; it grows in
  /// steps.
  [[nodiscard]] std::uint64_t reserved_bytes() const noexcept { return reserved_; }

 private:
  struct block {
    std::uint64_t at, bytes;
    bool used;
    bool holes = false;  // some of its pages were given back; only of a free one
  };
  struct alias {
    std::uintptr_t begin;
    std::size_t bytes;
    std::uint64_t at;
  };
  static constexpr std::uint64_t least_step = 1U << 20, most_step = 64U << 20;

  /// Returns the end of the last block in use.
  [[nodiscard]] std::uint64_t top() const noexcept {
    return blocks_.empty() ? 0 : blocks_.back().at + blocks_.back().bytes;
  }
  /// Returns the index of the block that contains a position; the number of blocks if none does.
  [[nodiscard]] std::size_t block_of(std::uint64_t at) const noexcept {
    if (at >= top()) return blocks_.size();
    const auto next = std::upper_bound(blocks_.begin(), blocks_.end(), at,
                                       [](std::uint64_t position, const block& b) { return position < b.at; });
    return static_cast<std::size_t>(next - blocks_.begin()) - 1;  // the first block begins at 0
  }
  /// Returns the index of the block in use that begins at `p`; the number of blocks if none does.
  [[nodiscard]] std::size_t block_at(const std::byte* p) const noexcept {
    const std::size_t i = block_of(position(p));
    return i != blocks_.size() && blocks_[i].at == position(p) && blocks_[i].used ? i : blocks_.size();
  }
  enum class pages { kept, given_back };
  /// Merges a block with its free neighbours. If one of them has holes all of it becomes one, so that whoever takes it
  /// reserves no page twice.
  void free_block(std::size_t i, pages what) noexcept {
    blocks_[i].used = false;
    if (i + 1 < blocks_.size() && !blocks_[i + 1].used) swallow_next(i);
    if (i > 0 && !blocks_[i - 1].used) swallow_next(--i);
    block& b = blocks_[i];
    const bool is_last = i + 1 == blocks_.size();
    if (b.holes || what == pages::given_back) {
      const std::uint64_t end = is_last ? reserved_ : b.at + b.bytes;
      if (segment_->give_back(offset_ + b.at, end - b.at)) b.holes = true;
      if (is_last && b.holes) reserved_ = (std::min)(reserved_, b.at);
    }
    if (is_last) blocks_.pop_back();
  }
  void swallow_next(std::size_t i) noexcept {
    blocks_[i].bytes += blocks_[i + 1].bytes;
    blocks_[i].holes = blocks_[i].holes || blocks_[i + 1].holes;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }

  [[nodiscard]] std::uint64_t position(const void* p) const noexcept { return address(p) - address(base_); }
  static std::uintptr_t address(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }
  static std::uint64_t whole_pages(std::size_t bytes) noexcept {
    return (std::max<std::uint64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  }

  static bool starts_after(std::uintptr_t p, const alias& a) noexcept { return p < a.begin; }
  [[nodiscard, gnu::noinline]] std::optional<std::uint64_t> locate_alias(const void* p,
                                                                         std::size_t bytes) const noexcept {
    const auto next = std::upper_bound(aliases_.begin(), aliases_.end(), address(p), starts_after);
    if (next == aliases_.begin()) return std::nullopt;
    const alias& a = *(next - 1);
    const std::uint64_t inside = address(p) - a.begin;
    if (inside >= a.bytes || bytes > a.bytes - inside) return std::nullopt;
    return a.at + inside;
  }

  /// Reserves pages up to `end`, and some in advance if there is room, because each reservation costs system calls.
  void reserve(std::uint64_t end) {
    if (end <= reserved_) return;
    const std::uint64_t step = std::clamp(reserved_ / 4, least_step, most_step);
    const std::uint64_t wanted = (std::max)(end, reserved_ + step);
    const std::uint64_t generous = (std::min)(bytes_, (wanted + least_step - 1) / least_step * least_step);
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
    const std::string refusal = "no room for " + os::format_bytes(bytes) + " in this rank's shared memory: ";
    if (bytes > bytes_)
      throw error{{errc::out_of_resources},
                  refusal + "it is more than the " + os::format_bytes(bytes_) + " that a rank may allocate at all"};
    std::uint64_t in_use = 0;
    for (const block& b : blocks_) in_use += b.used ? b.bytes : 0;
    throw error{{errc::out_of_resources},
                refusal + os::format_bytes(in_use) + " of " + os::format_bytes(bytes_) + " are in use; free some"};
  }

  os::shm_segment* segment_;
  std::byte* base_;
  std::uint64_t offset_, bytes_;
  std::uint64_t dirty_ = 0;     // pages from here on were never handed out
  std::uint64_t reserved_ = 0;  // pages up to here are reserved
  std::vector<alias> aliases_;  // by address
  std::vector<block> blocks_;   // without gaps, by position; the last one is used, and no two free ones are neighbours
};

}  // namespace tutti::detail
