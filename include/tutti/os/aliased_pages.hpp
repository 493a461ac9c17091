#pragma once
#include <fcntl.h>
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

#include <tutti/os/fd.hpp>
#include <tutti/os/forked_pages.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/os/memory_policy.hpp>
#include <tutti/os/private_pages.hpp>
#include <tutti/os/shm_segment.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// Whole pages of this process's private memory that have been replaced, at their addresses, by pages of a shared
/// segment. Stays at its address. Content, protection, mlock(), mbind(), MADV_HUGEPAGE, MADV_NOHUGEPAGE and
/// MADV_DONTDUMP are kept, both ways. No other thread may write to the pages while the constructor or end() runs. In a
/// child made by fork() they are private copies.
class aliased_pages {
 public:
  /// Copies [first, first + bytes) to `image`, which maps `segment` at `offset`, and maps that part of the segment over
  /// them. `areas` are their mappings by areas_in(): private, anonymous and writable. The segment outlives this object.
  /// Throws error{out_of_resources} or {system}; the pages are then as before.
  aliased_pages(const shm_segment& segment, std::uint64_t offset, std::byte* image, std::byte* first, std::size_t bytes,
                const std::vector<memory_area>& areas)
      : file_(segment.native()), offset_(offset), bytes_(bytes) {
    // The kernel's name of the segment, which is not what fstat() says for every file system.
    const auto there = reinterpret_cast<std::uintptr_t>(image), start = reinterpret_cast<std::uintptr_t>(first);
    const auto of_image = areas_that([&](const memory_area& a) { return a.begin <= there && there < a.end; });
    if (of_image.empty()) throw_errno(ENOENT, "cannot find shared memory in /proc/self/maps");
    all_ = of_image.front();
    for (const memory_area& a : areas)
      traits_.push_back({a.begin - start + offset, a.end - start + offset, a.has("hg"), a.has("nh"), a.has("dd"),
                         a.has("lo"), memory_policy::of(reinterpret_cast<const void*>(a.begin))});
    fork_entry_ = {this,
                   [](const void* self) { return static_cast<const aliased_pages*>(self)->pieces(); },
                   {first, bytes, PROT_READ | PROT_WRITE, file_, offset}};
    forked_pages::add(fork_entry_);
    const forked_pages::excluded no_fork;  // nothing below throws but for the refusal of mmap()
    std::memcpy(image, first, bytes);
    // The kernel moves only pages that are mapped once.
    for_each_trait(image, offset, bytes, [](const traits& t, std::byte* at, std::size_t n) { t.apply_policy(at, n); });
    if (!replace(first, image)) {
      const int why = errno;
      forked_pages::remove(fork_entry_);
      throw_errno(why, "cannot map " + format_bytes(bytes) + " of shared memory over pages of this process");
    }
    restore_traits(first, offset, bytes);
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
      if (available_memory() < p.bytes) return false;
      // In shared memory a policy is the segment's, not the mapping's, and would stay for what lies there next.
      for_each_trait(p.at, p.offset, p.bytes, [](const traits& t, std::byte* at, std::size_t n) {
        if (!t.policy.is_default()) memory_policy{}.apply(at, n);
      });
      const bool done = detail::make_private(p);
      restore_traits(p.at, p.offset, p.bytes);
      if (!done) return false;
    }
    forked_pages::remove(fork_entry_);
    return ended_ = true;
  } catch (const std::exception&) {  // no descriptor, or no memory, to read /proc/self/maps
    return false;
  }

  /// Lets this object outlive the segment, whose pages must stay.
  void outlive_segment() noexcept {
    own_file_ = fd{::fcntl(file_, F_DUPFD_CLOEXEC, 3)};
    fork_entry_.first.file = file_ = own_file_.native();
  }

 private:
  [[nodiscard]] bool replace(std::byte* first, const std::byte* image) const noexcept {
    constexpr int access = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;
    constexpr int ours = MAP_SHARED | MAP_FIXED | MAP_NORESERVE | MAP_POPULATE;
    if (::mmap(first, bytes_, access, ours, file_, static_cast<off_t>(offset_)) == first) return true;
    // Kernels before 6.13 may have unmapped what was there. The content is in the segment.
    const int why = errno;
    if (::mmap(first, bytes_, access, own | MAP_FIXED_NOREPLACE, -1, 0) == first) std::memcpy(first, image, bytes_);
    errno = why;
    return false;
  }
  /// Returns the mappings of this part of the segment, but for what maps all of it.
  [[nodiscard]] std::vector<private_piece> pieces() const {
    std::vector<private_piece> found;
    for (const memory_area& a : areas_that([this](const memory_area& m) {
           const bool is_all = all_.begin <= m.begin && m.end <= all_.end;
           return !is_all && m.inode == all_.inode && m.device == all_.device && m.offset >= offset_ &&
                  m.offset + m.bytes() <= offset_ + bytes_;
         })) {
      const int protection = (a.permissions[0] == 'r' ? PROT_READ : 0) | (a.permissions[1] == 'w' ? PROT_WRITE : 0) |
                             (a.permissions[2] == 'x' ? PROT_EXEC : 0);
      found.push_back({reinterpret_cast<std::byte*>(a.begin), a.bytes(), protection, file_, a.offset});
    }
    return found;
  }
  /// Properties of the pages that a part of the segment replaces.
  struct traits {
    std::uint64_t begin, end;  // in the segment: the user may move the pages
    bool huge, not_huge, not_dumped, locked;
    memory_policy policy;

    void apply_policy(std::byte* at, std::size_t n) const noexcept {
      if (!policy.is_default()) policy.apply(at, n);
    }
  };
  /// Calls `use(traits, address, bytes)` for each of [at, at + bytes), which maps the segment at `offset`.
  template <class Use>
  void for_each_trait(std::byte* at, std::uint64_t offset, std::size_t bytes, Use use) const noexcept {
    for (const traits& t : traits_) {
      const std::uint64_t begin = (std::max)(t.begin, offset), stop = (std::min)(t.end, offset + bytes);
      if (begin < stop) use(t, at + (begin - offset), stop - begin);
    }
  }
  void restore_traits(std::byte* at, std::uint64_t offset, std::size_t bytes) const noexcept {
    const int saved = errno;
    for_each_trait(at, offset, bytes, [](const traits& t, std::byte* p, std::size_t n) {
      t.apply_policy(p, n);
      if (t.huge) ::madvise(p, n, MADV_HUGEPAGE);
      if (t.not_huge) ::madvise(p, n, MADV_NOHUGEPAGE);
      if (t.not_dumped) ::madvise(p, n, MADV_DONTDUMP);
      if (t.locked) ::mlock(p, n);
    });
    errno = saved;
  }

  int file_;  // of the segment
  fd own_file_;
  std::uint64_t offset_;
  std::size_t bytes_;
  memory_area all_;  // of the whole segment
  std::vector<traits> traits_;
  forked_pages::entry fork_entry_;
  bool ended_ = false;
};

}  // namespace tutti::os
