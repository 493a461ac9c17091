#include "tutti-run/rendezvous.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace tutti::launch {
namespace {

void fill_random(std::span<unsigned char> bytes) {
  while (!bytes.empty()) {
    const auto filled = ::getrandom(bytes.data(), bytes.size(), 0);
    if (filled < 0 && errno == EINTR) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(check(filled, "read random bytes from the kernel")));
  }
}

constexpr std::string_view name_begins = "tutti-run-";

// Folders that may take it.
std::vector<std::string> parents() {
  std::vector<std::string> found;
  for (const char* candidate :
       std::array<const char*, 4>{std::getenv("TMPDIR"), "/tmp", std::getenv("XDG_RUNTIME_DIR"), "/dev/shm"})
    if (candidate && *candidate == '/') found.emplace_back(candidate);
  return found;
}

void remove(const std::string& folder) noexcept {
  ::unlink(text(folder, "/secret").c_str());
  ::rmdir(folder.c_str());
}

// The lock comes before the content: a file that has one is locked, or its writer is dead.
unique_fd write_secret(const std::string& path, std::string_view secret) {
  unique_fd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (!file) return {};
  ::flock(file.value(), LOCK_EX | LOCK_NB);
  if (::write(file.value(), secret.data(), secret.size()) != std::ssize(secret)) return {};
  return file;
}

// Returns true for file systems of one machine. On one of several, a lock may not be seen by all of them.
bool shows_all_locks(const std::string& folder) noexcept {
  constexpr std::array<std::uint64_t, 5> local{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
                                               OVERLAYFS_SUPER_MAGIC};
  struct statfs about{};
  return ::statfs(folder.c_str(), &about) == 0 &&
         std::ranges::find(local, static_cast<std::uint64_t>(about.f_type)) != local.end();
}

// Removes a folder with a secret that is of this user and not locked. Nothing is reached through a symbolic link.
void remove_if_left(const std::string& path) noexcept {
  const unique_fd folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (!folder) return;
  const unique_fd file{::openat(folder.value(), "secret", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  struct stat about{};
  if (!file || ::fstat(file.value(), &about) != 0) return;
  if (!S_ISREG(about.st_mode) || about.st_uid != ::geteuid() || about.st_size == 0) return;
  if (::flock(file.value(), LOCK_EX | LOCK_NB) != 0) return;
  ::unlinkat(folder.value(), "secret", 0);
  ::rmdir(path.c_str());
}

// Removes what jobs have left of which all processes were killed at once.
void sweep(const std::string& parent) {
  if (!shows_all_locks(parent)) return;
  const auto close = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close)> folder{::opendir(parent.c_str()), close};
  if (!folder) return;
  while (const dirent* entry = ::readdir(folder.get()))
    if (std::string_view{entry->d_name}.starts_with(name_begins)) remove_if_left(text(parent, '/', entry->d_name));
}

// Returns true if a server could listen there now, at all addresses.
bool is_free(std::uint16_t port) {
  const unique_fd probe{check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "make a socket")};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return ::bind(probe.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

std::uint16_t free_port() {
  const unique_fd probe{check(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "make a socket")};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  check(::bind(probe.value(), reinterpret_cast<const sockaddr*>(&address), length), "find a free port on 127.0.0.1");
  check(::getsockname(probe.value(), reinterpret_cast<sockaddr*>(&address), &length), "read a socket's port");
  return ntohs(address.sin_port);
}

}  // namespace

std::string random_name() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::array<unsigned char, 16> bytes{};
  fill_random(bytes);
  std::string name;
  for (const unsigned byte : bytes) {
    name += digits[byte >> 4U];
    name += digits[byte & 15U];
  }
  return name;
}

std::string random_secret() {
  std::string secret(32, '\0');
  fill_random({reinterpret_cast<unsigned char*>(secret.data()), secret.size()});
  return secret;
}

std::uint16_t free_network_port() {
  constexpr std::uint16_t first = 20480;
  constexpr std::uint16_t count = 8192;
  constexpr int attempts = 100;
  for (int i = 0; i < attempts; ++i) {
    std::array<unsigned char, 2> random{};
    fill_random(random);
    const auto port = static_cast<std::uint16_t>(first + (random[0] * 256 + random[1]) % count);
    if (is_free(port)) return port;
  }
  throw failure(1, "no free port was found for rank 0");
}

rendezvous_point make_rendezvous() {
  rendezvous_point result;
  result.job = random_name();
  result.url = "unix:@tutti-" + result.job;
  result.port = free_port();
  return result;
}

secret_file::secret_file() : name_(text('/', name_begins, random_name())) {}

secret_file::~secret_file() {
  for (const auto& parent : parents()) remove(parent + name_);
}

std::string secret_file::make(std::string_view secret) {
  for (const auto& parent : parents()) {
    sweep(parent);
    const std::string folder = parent + name_;
    if (::mkdir(folder.c_str(), 0700) != 0) continue;
    locked_ = write_secret(folder + "/secret", secret);
    if (locked_) return folder + "/secret";
    remove(folder);
  }
  return {};
}

}  // namespace tutti::launch
