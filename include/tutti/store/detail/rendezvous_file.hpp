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

/// The file of a file_store: found or made, checked for being alive, locked, and replaced as a whole only.
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

  /// Holds the file's lock while it lives.
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

  /// Throws error{timed_out} when another process holds the lock all the time.
  [[nodiscard]] guard lock(deadline until) const { return lock(file_, until); }

  /// Throws error{rendezvous} when the path no longer leads to this file.
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

  /// Tells those on other machines that somebody is still there.
  void beat() const noexcept {
    std::array<std::byte, 8> sign{};
    const auto ticks = static_cast<std::uint64_t>(clock::now().time_since_epoch().count());
    wire::byte_writer{sign}.u64(ticks ^ static_cast<std::uint64_t>(::getpid()) << 40);
    static_cast<void>(write_at(wire::rendezvous_head::heartbeat_offset, sign));
  }

  /// Up to out.size() bytes from `offset`; fewer at the end of the file.
  [[nodiscard]] std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
    return read_at(file_, offset, out);
  }

  /// Under the lock: puts `bytes` at the end, which is at `offset`; all of it or, with an error, nothing.
  void append(std::uint64_t offset, std::span<const std::byte> bytes) const {
    if (const int cause = write_at(offset, bytes); cause != 0) {
      [[maybe_unused]] const int left = ::ftruncate(file_.native(), static_cast<off_t>(offset));
      fail_rendezvous(cause, path_, "cannot write " + std::to_string(bytes.size()) + " bytes");
    }
  }

  /// Under the lock: cuts off what a writer that was killed left behind the last whole record.
  void cut(std::uint64_t end) const {
    struct stat now{};
    if (::fstat(file_.native(), &now) != 0 || static_cast<std::uint64_t>(now.st_size) <= end) return;
    if (::ftruncate(file_.native(), static_cast<off_t>(end)) != 0) {
      fail_rendezvous(errno, path_, "cannot remove a half-written record");
    }
  }

  /// Leaves; the last participant removes the file.
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
    } catch (...) {  // somebody stopped holds the lock; the file is recognised as stale when its creator is gone
    }
    file_.reset();
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(file_); }

 private:
  /// Follows a symbolic link of this user; refuses one of somebody else, who could lead it to any file.
  static std::string own_target_of(const std::string& path) {
    struct stat link{};
    if (::lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return path;
    if (link.st_uid != ::geteuid()) fail_rendezvous(0, path, "it is a symbolic link of another user");
    std::array<char, PATH_MAX> real{};
    if (::realpath(path.c_str(), real.data()) == nullptr)
      fail_rendezvous(errno, path, "it is a symbolic link that leads nowhere");
    return real.data();
  }

  /// One attempt to open or make the file and to join it; false when it changed under us.
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
      if (silent) return read_head(file) == seen && replace();  // else somebody was there after all
      seen_alive_ = found.head.nonce;
      return false;
    }
    head_ = found.head;
    file_ = std::move(file);
    const auto joined = wire::decode_head(read_head(file_)).head.joined;
    put_counter(wire::rendezvous_head::joined_offset, joined + 1);
    return true;
  }

  /// Whether nothing at all happens to a file that was made on another machine, or is not completely written.
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

  /// Under the lock of the file that is there.
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

  /// 0, or why not all of it was written.
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
