// A library to preload: every TCP connection that the program opens sends at most $PEER_PACE bytes per second, as in
// networks that limit each flow.
#include <dlfcn.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>

extern "C" int connect(int socket, const sockaddr* to, socklen_t bytes) {
  static const auto next = reinterpret_cast<int (*)(int, const sockaddr*, socklen_t)>(dlsym(RTLD_NEXT, "connect"));
  if (const char* pace = std::getenv("PEER_PACE")) {
    const std::uint64_t rate = std::strtoull(pace, nullptr, 10);
    (void)setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
  }
  return next(socket, to, bytes);
}
