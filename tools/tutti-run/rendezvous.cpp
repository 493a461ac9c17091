#include "rendezvous.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

namespace tutti::launch {
namespace {

void fill_random(std::span<unsigned char> bytes) {
  while (!bytes.empty()) {
    const auto filled = ::getrandom(bytes.data(), bytes.size(), 0);
    if (filled < 0 && errno == EINTR) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(check(filled, "read random bytes from the kernel")));
  }
}

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

bool make_empty(const std::string& path) {
  return static_cast<bool>(unique_fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)});
}

bool write_secret(const std::string& path) {
  const unique_fd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
  std::array<unsigned char, 32> secret{};
  fill_random(secret);
  const bool written = file && ::write(file.value(), secret.data(), secret.size()) == std::ssize(secret);
  ::explicit_bzero(secret.data(), secret.size());
  return written;
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

rendezvous make_rendezvous() {
  rendezvous result;
  result.job = random_name();
  result.name = "tutti-" + result.job;
  result.port = free_port();
  return result;
}

secret_file::secret_file() {
  const std::array<const char*, 4> candidates{std::getenv("TMPDIR"), "/tmp", std::getenv("XDG_RUNTIME_DIR"),
                                              "/dev/shm"};
  for (const char* candidate : candidates) {
    if (!candidate || *candidate != '/') continue;
    std::string folder = text(candidate, "/tutti-run-XXXXXX");
    if (!::mkdtemp(folder.data())) continue;
    folder_ = folder;
    path_ = folder + "/secret";
    places_ = folder + "/ranks";
    if (write_secret(path_) && make_empty(places_)) return;
    remove();
  }
}

secret_file::~secret_file() {
  if (!path_.empty()) remove();
}

void secret_file::remove() noexcept {
  for (const auto& file : {path_, places_}) ::unlink(file.c_str());
  ::rmdir(folder_.c_str());
  path_.clear();
}

}  // namespace tutti::launch
