#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>

#include <tutti/os/fd.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/shm_mapping.hpp>

namespace tutti::os {

/// Anonymous memory that processes share by passing its descriptor; it has no name and vanishes with its last user.
/// Pages are taken only by reserve(), so a segment may be far larger than the machine's memory.
class shm_segment {
 public:
  shm_segment() noexcept = default;

  /// Makes a segment of `bytes` (rounded up to whole pages), sealed against growing and shrinking. Throws
  /// error{out_of_resources} or error{system}.
  [[nodiscard]] static shm_segment create(std::uint64_t bytes) {
    fd file{::memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!file)
      throw_errno(errno, "cannot make a memfd, which memory that ranks share needs (TUTTI_TRANSPORT=tcp does without)");
    shm_segment s{std::move(file), size_to_whole_pages(bytes)};
    s.set_size();
    if (::fcntl(s.fd_.native(), F_ADD_SEALS, required_seals) != 0) throw_errno(errno, "cannot seal a memfd");
    return s;
  }

  /// Takes over a segment received from a peer. Checks that it has `bytes` and is sealed, so that no peer can make this
  /// process fault later. Throws error{protocol}.
  [[nodiscard]] static shm_segment adopt(fd file, std::uint64_t bytes) {
    const std::uint64_t whole = size_to_whole_pages(bytes);
    struct stat s{};
    if (::fstat(file.native(), &s) != 0) throw_errno(errno, "cannot examine a shared-memory segment from a peer");
    if (!S_ISREG(s.st_mode) || static_cast<std::uint64_t>(s.st_size) != whole) {
      throw error{{errc::protocol},
                  "a peer sent a segment of " + std::to_string(s.st_size) + " bytes where " + std::to_string(whole) +
                      " were announced"};
    }
    const int seals = ::fcntl(file.native(), F_GET_SEALS);
    if (seals < 0 || (seals & required_seals) != required_seals) {
      throw error{{errc::protocol}, "a peer sent a shared-memory segment that can still shrink (it is not sealed)"};
    }
    return shm_segment{std::move(file), whole};
  }

  /// Takes the memory for [offset, offset + bytes) now, so that an access later cannot fault. Throws
  /// error{out_of_resources}, which says how much was wanted and how much is free; a part of the range may be taken
  /// then. Costs as much as zeroing the memory, once.
  void reserve(std::uint64_t offset, std::uint64_t bytes) {
    if (offset > bytes_ || bytes > bytes_ - offset) {
      throw usage_error{"reserve(" + std::to_string(offset) + ", " + std::to_string(bytes) + ") leaves a segment of " +
                        std::to_string(bytes_) + " bytes"};
    }
    if (bytes == 0) return;
    constexpr std::uint64_t piece = 32U << 20;
    for (std::uint64_t done = 0; done < bytes; done += piece) {
      // The kernel kills a process rather than refuse pages of a memfd, so this tests first whether the memory is
      // there, before every piece, because other ranks of this machine reserve at the same time.
      if (bytes - done > available_memory()) fail_reserve(ENOMEM, bytes);
      const std::uint64_t now = (std::min)(piece, bytes - done);
      int rc = allocate(offset + done, now);
      if (rc == EINTR) rc = allocate_between_signals(offset + done, now);
      if (rc != 0) fail_reserve(rc, bytes);
    }
  }

  /// Gives the memory of [offset, offset + bytes) back to the machine: the range holds zeros, and an access may fault
  /// until it is reserved again. Returns false if the file system cannot; the memory stays then.
  [[nodiscard]] bool give_back(std::uint64_t offset, std::uint64_t bytes) noexcept {
    constexpr int way = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return ::fallocate(fd_.native(), way, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
  }

  /// Maps the whole segment, shared and writable. Throws error.
  [[nodiscard]] shm_mapping map() const { return map(0, bytes_); }

  /// Maps a part; `offset` must be a multiple of page_bytes().
  [[nodiscard]] shm_mapping map(std::uint64_t offset, std::uint64_t bytes) const {
    if (bytes == 0 || offset % page_bytes() != 0 || offset > bytes_ || bytes > bytes_ - offset) {
      throw usage_error{"map(" + std::to_string(offset) + ", " + std::to_string(bytes) +
                        ") does not fit a segment of " + std::to_string(bytes_) +
                        " bytes, or does not begin at a page"};
    }
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.native(),
                      static_cast<off_t>(offset));
    if (at == MAP_FAILED) throw_errno(errno, "cannot map " + format_bytes(bytes) + " of shared memory");
    return {at, bytes};
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int native() const noexcept { return fd_.native(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  static constexpr int required_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

  shm_segment(fd file, std::uint64_t bytes) noexcept : fd_(std::move(file)), bytes_(bytes) {}

  static std::uint64_t size_to_whole_pages(std::uint64_t bytes) {
    const std::uint64_t page = page_bytes();
    if (bytes == 0 || bytes > static_cast<std::uint64_t>((std::numeric_limits<off_t>::max)()) - page) {
      throw usage_error{"a shared-memory segment cannot have " + std::to_string(bytes) + " bytes"};
    }
    return (bytes + page - 1) / page * page;
  }

  void set_size() {
    while (::ftruncate(fd_.native(), static_cast<off_t>(bytes_)) != 0) {
      if (errno != EINTR) throw_errno(errno, "cannot make a shared-memory segment of " + format_bytes(bytes_));
    }
  }

  [[nodiscard]] int allocate(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return ::posix_fallocate(fd_.native(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }

  // A signal makes the kernel free all that the call had taken so far; a small call succeeds between two signals.
  [[nodiscard]] int allocate_between_signals(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    constexpr std::uint64_t piece = 1U << 16;
    while (bytes > 0) {
      const std::uint64_t now = (std::min)(bytes, piece);
      const int rc = allocate(offset, now);
      if (rc == EINTR) continue;
      if (rc != 0) return rc;
      offset += now;
      bytes -= now;
    }
    return 0;
  }

  [[noreturn]] void fail_reserve(int cause, std::uint64_t bytes) const {
    if (classify_errno(cause) != errc::out_of_resources) {
      throw_errno(cause, "cannot reserve " + format_bytes(bytes) + " of shared memory");
    }
    throw error{{errc::out_of_resources, 0, -1, static_cast<std::uint64_t>(cause)},
                "not enough shared memory: wanted " + format_bytes(bytes) + ", free are " +
                    format_bytes(available_memory()) +
                    "; use smaller buffers or fewer ranks on this machine, or raise the memory limit"};
  }

  fd fd_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tutti::os
