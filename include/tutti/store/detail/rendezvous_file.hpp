#pragma once
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/process.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/file_store_options.hpp>
#include <tutti/wire/hex.hpp>
#include <tutti/wire/random.hpp>
#include <tutti/wire/rendezvous_file.hpp>

namespace tutti::detail {

/// Throws error{rendezvous} for a file, or {out_of_resources} if the errno `cause` means that; 0 is no errno.
[[noreturn]] inline void fail_rendezvous(int cause, const std::string& path, const std::string& problem) {
  const errc kind =
      cause != 0 && os::classify_errno(cause) == errc::out_of_resources ? errc::out_of_resources : errc::rendezvous;
  throw error{{kind, 0, -1, static_cast<std::uint64_t>(cause)},
              "rendezvous file " + path + ": " + problem +
                  (cause != 0 ? ": " + std::generic_category().message(cause) : std::string{})};
}

inline std::string creator_of(const wire::rendezvous_head& h) {
  return "host " + h.host + ", pid " + std::to_string(h.pid);
}

/// The file of a file_store. The constructor opens or creates it, and replaces one whose job has ended; a new file
/// appears with a complete head. Processes exclude each other by flock().
class rendezvous_file {
 public:
  rendezvous_file(const std::string& path, const file_store_options& options)
      : path_(own_target_of(path)), options_(options) {
    const deadline until = after(options_.timeout);
    while (!try_open(until)) {
      if (clock::now() >= until) fail_rendezvous(0, path_, "others keep replacing it; do two jobs use it?");
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  /// The holder of the file's lock; its destructor releases the lock.
  class guard {
   public:
    explicit guard(int descriptor) noexcept : descriptor_(descriptor) {}
    guard(guard&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    guard& operator=(guard&& other) noexcept {
      release();
      descriptor_ = std::exchange(other.descriptor_, -1);
      return *this;
    }
    ~guard() { release(); }
    void release() noexcept {
      if (descriptor_ >= 0) ::flock(std::exchange(descriptor_, -1), LOCK_UN);
    }

   private:
    int descriptor_;
  };

  /// Waits for the lock. Throws error{timed_out} if other processes hold it until the deadline.
  [[nodiscard]] guard lock(deadline until) const { return lock(file_, until); }

  /// Throws error{rendezvous} if the path does not lead to this file any more.
  void require_current() const {
    struct stat now{};
    if (::stat(path_.c_str(), &now) == 0 && same_file(now)) return;
    const os::fd other{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    const auto successor = wire::decode_head(read_head(other));
    fail_rendezvous(0, path_,
                    "the file that was made by " + creator_of(head_) +
                        (successor.kind == wire::head_kind::valid
                             ? " was replaced by " + creator_of(successor.head) + "; do two jobs use the same path?"
                             : std::string{" was removed while it was in use"}));
  }

  /// Changes the heartbeat in the file's head, by which processes on other machines see that the file is in use.
  void beat() const noexcept {
    std::array<std::byte, 8> sign{};
    const auto ticks = static_cast<std::uint64_t>(clock::now().time_since_epoch().count());
    wire::byte_writer{sign}.u64(ticks ^ static_cast<std::uint64_t>(::getpid()) << 40);
    static_cast<void>(write_at(wire::rendezvous_head::heartbeat_offset, sign));
  }

  /// Reads up to out.size() bytes from `offset` on; fewer at the end of the file. Returns their number.
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
    return read_at(file_, offset, out);
  }

  /// Appends `bytes` at the end of the file, which is at `offset`. The caller holds the lock. Throws if not all of them
  /// can be written, and removes those that were.
  void append(std::uint64_t offset, std::span<const std::byte> bytes) const {
    if (const int cause = write_at(offset, bytes); cause != 0) {
      [[maybe_unused]] const int left = ::ftruncate(file_.native(), static_cast<off_t>(offset));
      fail_rendezvous(cause, path_, "cannot write " + std::to_string(bytes.size()) + " bytes");
    }
  }

  /// Truncates the file to `end` bytes. The caller holds the lock. Removes a record that a writer that was killed left
  /// incomplete.
  void cut(std::uint64_t end) const {
    struct stat now{};
    if (::fstat(file_.native(), &now) != 0 || static_cast<std::uint64_t>(now.st_size) <= end) return;
    if (::ftruncate(file_.native(), static_cast<off_t>(end)) != 0) {
      fail_rendezvous(errno, path_, "cannot remove a half-written record");
    }
  }

  /// Closes the file; the last process to finish removes it. Waits for the lock, at most a second. Does nothing in a
  /// child made by fork().
  void finish() noexcept {
    if (!file_ || owner_ != ::getpid()) return;
    try {
      const auto held = lock(after(std::chrono::seconds{1}));
      const auto now = wire::decode_head(read_head(file_));
      if (now.kind == wire::head_kind::valid) {
        const std::uint64_t finished = now.head.finished + 1;
        put_counter(wire::rendezvous_head::finished_offset, finished);
        const auto expected = static_cast<std::uint64_t>((std::max)(options_.world, 0));
        struct stat current{};
        if (finished >= now.head.joined && now.head.joined >= expected && ::stat(path_.c_str(), &current) == 0 &&
            same_file(current)) {
          ::unlink(path_.c_str());
        }
      }
    } catch (...) {  // a stopped process holds the lock; the file is found to be stale once its creator has ended
    }
    file_.reset();
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(file_); }

 private:
  /// Returns the target of a symbolic link of this user, else the path itself. Throws if the link belongs to another
  /// user, who could make it lead to any file.
  static std::string own_target_of(const std::string& path) {
    struct stat link{};
    if (::lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return path;
    if (link.st_uid != ::geteuid()) fail_rendezvous(0, path, "it is a symbolic link of another user");
    std::array<char, PATH_MAX> real{};
    if (::realpath(path.c_str(), real.data()) == nullptr)
      fail_rendezvous(errno, path, "it is a symbolic link that leads nowhere");
    return real.data();
  }

  /// Tries once to open or create the file and to join it. Returns false if the file changed meanwhile, or must be
  /// examined again because a process on another machine was seen to use it.
  bool try_open(deadline until) {
    os::fd file{::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)};
    if (!file) {
      if (errno == ENOENT) return make_new();
      if (errno == ELOOP) return false;
      fail_rendezvous(errno, path_, errno == EISDIR ? "a file is needed" : "cannot open it");
    }
    struct stat opened{};
    if (::fstat(file.native(), &opened) != 0) fail_rendezvous(errno, path_, "cannot examine it");
    if (!S_ISREG(opened.st_mode)) fail_rendezvous(0, path_, "it is not a regular file");
    if (opened.st_uid != ::geteuid()) fail_rendezvous(0, path_, "it belongs to another user");

    guard held = lock(file, until);
    struct stat current{};
    if (::stat(path_.c_str(), &current) != 0 || current.st_ino != opened.st_ino || current.st_dev != opened.st_dev) {
      return false;
    }
    const auto seen = read_head(file);
    const auto found = wire::decode_head(seen);
    switch (found.kind) {
      case wire::head_kind::foreign:
        fail_rendezvous(0, path_, "it is some other file, which is left as it is; remove it or choose another path");
      case wire::head_kind::other_version:
        fail_rendezvous(0, path_,
                        "it is of version " + std::to_string(int{found.head.version}) +
                            " of the format, this is version " +
                            std::to_string(int{wire::rendezvous_head::current_version}) +
                            "; all ranks must be built with the same version of tutti");
      case wire::head_kind::empty:
        return replace();
      case wire::head_kind::torn:
      case wire::head_kind::valid:
        break;
    }
    const bool whole = found.kind == wire::head_kind::valid;
    const bool here = whole && found.head.domain == os::memory_domain();
    if (here && !os::is_alive(static_cast<::pid_t>(found.head.pid), found.head.start_time)) return replace();
    if (!whole || (!here && seen_alive_ != found.head.nonce)) {
      held.release();
      const bool silent = is_silent(file);
      held = lock(file, until);
      if (::stat(path_.c_str(), &current) != 0 || current.st_ino != opened.st_ino) return false;
      if (silent) return read_head(file) == seen && replace();  // another head: the file is in use after all
      seen_alive_ = found.head.nonce;
      return false;
    }
    head_ = found.head;
    file_ = std::move(file);
    const auto joined = wire::decode_head(read_head(file_)).head.joined;
    put_counter(wire::rendezvous_head::joined_offset, joined + 1);
    return true;
  }

  /// Returns true if neither size nor head of the file change for `stale_after`: its job has ended. For files that were
  /// created on another machine, whose pids say nothing here, or that are not completely written.
  [[nodiscard]] bool is_silent(const os::fd& file) const {
    const auto look = [&] {
      struct stat s{};
      ::fstat(file.native(), &s);
      return std::pair{s.st_size, read_head(file)};
    };
    const auto before = look();
    const deadline until = after(options_.stale_after);
    while (clock::now() < until) {
      std::this_thread::sleep_for(std::min<duration>(std::chrono::milliseconds{20}, remaining(until)));
      if (look() != before) return false;
    }
    return true;
  }

  bool make_new() {
    auto [file, name] = write_temporary();
    const bool done = ::link(name.c_str(), path_.c_str()) == 0;
    int cause = errno;
    if (!done && cause != EEXIST) {  // a file system without hard links
      constexpr unsigned no_replace = 1;
      if (::renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, path_.c_str(), no_replace) == 0) return take(std::move(file));
      cause = errno;
    }
    ::unlink(name.c_str());
    if (done) return take(std::move(file));
    if (cause != EEXIST) fail_rendezvous(cause, path_, "cannot make it");
    return false;
  }

  /// Replaces the existing file by a new one. The caller holds the lock of the existing one.
  bool replace() {
    auto [file, name] = write_temporary();
    if (::rename(name.c_str(), path_.c_str()) != 0) {
      const int cause = errno;
      ::unlink(name.c_str());
      fail_rendezvous(cause, path_, "cannot replace a stale file");
    }
    return take(std::move(file));
  }

  bool take(os::fd file) {
    file_ = std::move(file);
    return true;
  }

  /// Creates a file with a complete head beside the path. Returns it, and its name.
  [[nodiscard]] std::pair<os::fd, std::string> write_temporary() {
    std::array<std::byte, 8> suffix{};
    wire::rendezvous_head h;
    if (!wire::kernel_random(suffix) || !wire::kernel_random(h.nonce)) fail_rendezvous(0, path_, "no random bytes");
    h.pid = static_cast<std::uint64_t>(::getpid());
    h.start_time = os::process_start_time(::getpid()).value_or(0);
    h.domain = os::memory_domain();
    h.host = os::hostname();
    h.joined = 1;
    const std::string name = path_ + ".tmp-" + wire::to_hex(suffix);
    os::fd file{::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!file) fail_rendezvous(errno, path_, "cannot make a file in its directory");
    if (const int cause = write_at(file, 0, wire::encode_head(h)); cause != 0) {
      ::unlink(name.c_str());
      fail_rendezvous(cause, path_, "cannot write it");
    }
    head_ = h;
    return {std::move(file), name};
  }

  [[nodiscard]] guard lock(const os::fd& file, deadline until) const {
    duration pause = std::chrono::microseconds{50};
    while (::flock(file.native(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) fail_rendezvous(errno, path_, "cannot lock it");
      if (clock::now() >= until) {
        throw error{{errc::timed_out},
                    "rendezvous file " + path_ +
                        ": another process holds its lock and does not give it back; is a rank stopped?"};
      }
      std::this_thread::sleep_for((std::min)(pause, remaining(until)));
      pause = std::min<duration>(pause * 2, std::chrono::milliseconds{5});
    }
    return guard{file.native()};
  }

  [[nodiscard]] bool same_file(const struct stat& other) const noexcept {
    struct stat mine{};
    return ::fstat(file_.native(), &mine) == 0 && mine.st_ino == other.st_ino && mine.st_dev == other.st_dev;
  }

  static std::size_t read_at(const os::fd& file, std::uint64_t offset, std::span<std::byte> out) {
    std::size_t used = 0;
    while (used < out.size()) {
      const ::ssize_t n =
          ::pread(file.native(), out.data() + used, out.size() - used, static_cast<off_t>(offset + used));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      used += static_cast<std::size_t>(n);
    }
    return used;
  }

  static std::vector<std::byte> read_head(const os::fd& file) {
    std::vector<std::byte> bytes(wire::rendezvous_head::bytes);
    bytes.resize(file ? read_at(file, 0, bytes) : 0);
    return bytes;
  }

  /// Returns 0, or the errno for which not all bytes were written.
  static int write_at(const os::fd& file, std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const ::ssize_t n = ::pwrite(file.native(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? errno : ENOSPC;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return 0;
  }
  [[nodiscard]] int write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept {
    return write_at(file_, offset, bytes);
  }

  void put_counter(std::size_t offset, std::uint64_t value) const noexcept {
    std::array<std::byte, 8> bytes{};
    wire::byte_writer{bytes}.u64(value);
    static_cast<void>(write_at(offset, bytes));
  }

  std::string path_;
  file_store_options options_;
  os::fd file_;
  ::pid_t owner_ = ::getpid();
  wire::rendezvous_head head_;
  std::array<std::byte, 16> seen_alive_{};
};

}  // namespace tutti::detail
