#include "tutti-run/rendezvous.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <cstring>
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

// Where it may lie.
std::vector<std::string> folders(const std::string& name) {
  std::vector<std::string> found;
  for (const char* candidate :
       std::array<const char*, 4>{std::getenv("TMPDIR"), "/tmp", std::getenv("XDG_RUNTIME_DIR"), "/dev/shm"})
    if (candidate && *candidate == '/') found.push_back(candidate + name);
  return found;
}

void remove(const std::string& folder) noexcept {
  ::unlink(text(folder, "/secret").c_str());
  ::rmdir(folder.c_str());
}

unique_fd new_file(const std::string& path) {
  return unique_fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
}

bool write_secret(const std::string& path, std::string_view secret) {
  const unique_fd file = new_file(path);
  return file && ::write(file.value(), secret.data(), secret.size()) == std::ssize(secret);
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

secret_file::secret_file() : name_("/tutti-run-" + random_name()) {}

secret_file::~secret_file() {
  for (const auto& folder : folders(name_)) remove(folder);
}

std::string secret_file::make(std::string_view secret) const {
  for (const auto& folder : folders(name_)) {
    if (::mkdir(folder.c_str(), 0700) != 0) continue;
    if (write_secret(folder + "/secret", secret)) return folder + "/secret";
    remove(folder);
  }
  return {};
}

}  // namespace tutti::launch
