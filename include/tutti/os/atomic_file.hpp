#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include <tutti/os/fd.hpp>
#include <tutti/os/sync_folder.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/os/write_all.hpp>

namespace tutti::os {

/// A file that replaces another as a whole: after a crash at any moment, its path names the old bytes or the new ones.
/// It is written under another name in the same folder, and made durable and renamed by commit(); without commit() it
/// is removed. A symbolic link stays: the file that it names is replaced, or made. A process that is killed leaves
/// `path.<pid>.<n>.tmp`. Errors: error{system} or {out_of_resources} that names the path.
class atomic_file {
 public:
  explicit atomic_file(const std::string& path) : path_(behind_links(path)) {
    static std::atomic<unsigned> count{0};
    temporary_ = path_ + "." + std::to_string(::getpid()) + "." + std::to_string(count++) + ".tmp";
    ::unlink(temporary_.c_str());  // left by an earlier process with this pid
    file_.reset(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_) fail("cannot create " + temporary_);
  }
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  ~atomic_file() {
    if (file_) ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    if (const int why = write_all(file_.native(), bytes); why != 0) throw_errno(why, "cannot write " + path_);
  }

  void commit() {
    if (::fsync(file_.native()) != 0) fail("cannot write " + path_);
    commit_to_processes();
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    sync_folder(folder);
  }
  /// Does the same without waiting for the disk: a crash of the machine may lose both the old bytes and the new ones.
  void commit_to_processes() {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot write " + path_);
    file_.reset();
  }

 private:
  static std::string behind_links(const std::string& path) {
    std::string at = path, to(4096, '\0');
    for (int links = 0; links < 40; ++links) {  // as many as the kernel follows
      const ::ssize_t n = ::readlink(at.c_str(), to.data(), to.size());
      if (n <= 0) return at;
      if (to.front() != '/') at.resize(at.rfind('/') + 1);  // the link is relative to its folder; npos + 1 is 0
      at = (to.front() == '/' ? std::string{} : at) + to.substr(0, static_cast<std::size_t>(n));
    }
    throw_errno(ELOOP, "cannot write " + path);
  }
  [[noreturn]] static void fail(const std::string& what) { throw_errno(errno, what); }

  std::string path_, temporary_;
  fd file_;
};

}  // namespace tutti::os
