#include "rendezvous.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdio>
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

unique_fd listen_on(const std::string& name) {
  unique_fd listener{check(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "make a Unix socket")};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  check(::bind(listener.value(), reinterpret_cast<const sockaddr*>(&address), length), "bind the rendezvous socket");
  check(::listen(listener.value(), SOMAXCONN), "listen on the rendezvous socket");
  return listener;
}

int sealable_memory() noexcept {
  constexpr unsigned not_executable = 8;  // MFD_NOEXEC_SEAL: some systems demand it, older kernels do not know it
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int memory = ::memfd_create("tutti-secret", flags | not_executable);
  return memory < 0 && errno == EINVAL ? ::memfd_create("tutti-secret", flags) : memory;
}

unique_fd make_secret() {
  unique_fd memory{check(sealable_memory(), "make memory for the job's secret")};
  std::array<unsigned char, 32> secret{};
  fill_random(secret);
  const auto written = ::write(memory.value(), secret.data(), secret.size());
  ::explicit_bzero(secret.data(), secret.size());
  check(written == std::ssize(secret) ? 0 : -1, "store the job's secret");
  check(::fcntl(memory.value(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL),
        "seal the job's secret");
  return memory;
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
  result.listener = listen_on(result.name);
  result.secret = make_secret();
  result.port = free_port();
  return result;
}

int reopen_read_only(int secret) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", secret);
  return ::open(path.data(), O_RDONLY | O_CLOEXEC);
}

}  // namespace tutti::launch
