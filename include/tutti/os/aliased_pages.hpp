#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tutti/os/forked_pages.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/os/private_pages.hpp>
#include <tutti/os/shm_segment.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// Whole pages of this process's private memory that have been replaced, at their addresses, by pages of a shared
/// segment. Stays at its address. Content, protection, mlock() and MADV_HUGEPAGE are kept, both ways. No other thread
/// may write to the pages while the constructor or end() runs. In a child made by fork() they are private copies.
class aliased_pages {
 public:
  /// Copies [first, first + bytes) to `image`, which maps `segment` at `offset`, and maps that part of the segment over
  /// them. `areas` are their mappings by areas_in(): private, anonymous and writable. The segment outlives this object.
  /// Throws error{out_of_resources} or {system}; the pages are then as before.
  aliased_pages(const shm_segment& segment, std::uint64_t offset, std::byte* image, std::byte* first, std::size_t bytes,
                std::vector<memory_area> areas)
      : segment_(&segment), offset_(offset), bytes_(bytes), areas_(std::move(areas)) {
    // The kernel's name of the segment, which is not what fstat() says for every file system.
    const auto there = reinterpret_cast<std::uintptr_t>(image), start = reinterpret_cast<std::uintptr_t>(first);
    const auto of_image = areas_that([&](const memory_area& a) { return a.begin <= there && there < a.end; });
    if (of_image.empty()) throw_errno(ENOENT, "cannot find shared memory in /proc/self/maps");
    device_ = of_image.front().device;
    inode_ = of_image.front().inode;
    fork_entry_ = {this, [](const void* self) { return static_cast<const aliased_pages*>(self)->pieces(); }};
    forked_pages::add(fork_entry_);
    const forked_pages::excluded no_fork;  // nothing below throws but for the refusal of mmap()
    std::memcpy(image, first, bytes);
    if (!replace(first, image)) {
      const int why = errno;
      forked_pages::remove(fork_entry_);
      throw_errno(why, "cannot map " + format_bytes(bytes) + " of shared memory over pages of this process");
    }
    for (memory_area& a : areas_) {
      restore_flags(a, reinterpret_cast<std::byte*>(a.begin), a.bytes());
      a.begin = a.begin - start + offset;  // from here on, positions in the segment: the user may move the pages
      a.end = a.end - start + offset;
    }
  }
  aliased_pages(const aliased_pages&) = delete;
  aliased_pages& operator=(const aliased_pages&) = delete;
  ~aliased_pages() {
    if (end()) return;
    const forked_pages::excluded no_fork;
    forked_pages::remove(fork_entry_);
  }

  /// Makes the pages private again, with their content, wherever the program has moved them by then; pages that it has
  /// unmapped are left alone. Returns false if memory is short or the kernel refuses: then some still alias the
  /// segment, whose pages must stay, and the call can be repeated.
  [[nodiscard]] bool end() noexcept try {
    if (ended_) return true;
    const forked_pages::excluded no_fork;
    for (const private_piece& p : pieces()) {
      if (available_memory() < p.bytes || !detail::make_private(p)) return false;
      for (const memory_area& a : areas_) {
        const std::uint64_t begin = (std::max<std::uint64_t>)(a.begin, p.offset);
        const std::uint64_t stop = (std::min<std::uint64_t>)(a.end, p.offset + p.bytes);
        if (begin < stop) restore_flags(a, p.at + (begin - p.offset), stop - begin);
      }
    }
    forked_pages::remove(fork_entry_);
    return ended_ = true;
  } catch (const std::exception&) {  // no descriptor, or no memory, to read /proc/self/maps
    return false;
  }

 private:
  [[nodiscard]] bool replace(std::byte* first, const std::byte* image) const noexcept {
    constexpr int access = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;
    constexpr int ours = MAP_SHARED | MAP_FIXED | MAP_NORESERVE | MAP_POPULATE;
    if (::mmap(first, bytes_, access, ours, segment_->native(), static_cast<off_t>(offset_)) == first) return true;
    // Kernels before 6.13 may have unmapped what was there. The content is in the segment.
    const int why = errno;
    if (::mmap(first, bytes_, access, own | MAP_FIXED_NOREPLACE, -1, 0) == first) std::memcpy(first, image, bytes_);
    errno = why;
    return false;
  }
  /// Returns the mappings of this part of the segment that lie inside of it, which those of the whole segment do not.
  [[nodiscard]] std::vector<private_piece> pieces() const {
    std::vector<private_piece> found;
    for (const memory_area& a : areas_that([this](const memory_area& m) {
           return m.inode == inode_ && m.device == device_ && m.offset >= offset_ &&
                  m.offset + m.bytes() <= offset_ + bytes_;
         })) {
      const int protection = (a.permissions[0] == 'r' ? PROT_READ : 0) | (a.permissions[1] == 'w' ? PROT_WRITE : 0) |
                             (a.permissions[2] == 'x' ? PROT_EXEC : 0);
      found.push_back({reinterpret_cast<std::byte*>(a.begin), a.bytes(), protection, segment_->native(), a.offset});
    }
    return found;
  }
  static void restore_flags(const memory_area& like, std::byte* at, std::size_t bytes) noexcept {
    const int saved = errno;
    if (like.has("hg")) ::madvise(at, bytes, MADV_HUGEPAGE);
    if (like.has("lo")) ::mlock(at, bytes);
    errno = saved;
  }

  const shm_segment* segment_;
  std::uint64_t offset_;
  std::size_t bytes_;
  std::vector<memory_area> areas_;
  std::string device_;
  std::uint64_t inode_ = 0;
  forked_pages::entry fork_entry_;
  bool ended_ = false;
};

}  // namespace tutti::os
