// A library to preload: each end of every TCP connection of the program sends at most $PEER_PACE bytes per second, as
// in networks that limit each flow.
#include <dlfcn.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>

namespace {

void pace(int socket) {
  if (const char* text = std::getenv("PEER_PACE")) {
    const std::uint64_t rate = std::strtoull(text, nullptr, 10);
    (void)setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
  }
}

}  // namespace

extern "C" int connect(int socket, const sockaddr* to, socklen_t bytes) {
  static const auto next = reinterpret_cast<int (*)(int, const sockaddr*, socklen_t)>(dlsym(RTLD_NEXT, "connect"));
  pace(socket);
  return next(socket, to, bytes);
}

extern "C" int accept(int listener, sockaddr* from, socklen_t* bytes) {
  static const auto next = reinterpret_cast<int (*)(int, sockaddr*, socklen_t*)>(dlsym(RTLD_NEXT, "accept"));
  const int socket = next(listener, from, bytes);
  if (socket >= 0) pace(socket);
  return socket;
}

extern "C" int accept4(int listener, sockaddr* from, socklen_t* bytes, int flags) {
  static const auto next = reinterpret_cast<int (*)(int, sockaddr*, socklen_t*, int)>(dlsym(RTLD_NEXT, "accept4"));
  const int socket = next(listener, from, bytes, flags);
  if (socket >= 0) pace(socket);
  return socket;
}
