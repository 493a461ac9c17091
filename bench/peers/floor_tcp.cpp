// A reference instead of a peer, as floor.cpp is for shared memory: two ranks with bare send and recv over TCP on
// loopback, without headers, error handling or more than one operation at a time. Float sum.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fstream>

#include "harness.h"

struct Floor {
  peers::Harness& h;
  int fd = -1;
  float* received = nullptr;
  static constexpr size_t halves_from = 1 << 20;  // bytes; less is exchanged whole

  explicit Floor(peers::Harness& harness) : h(harness) {
    const std::string path = std::string(std::getenv("PEER_DIR")) + "/port";
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (h.rank == 0) {
      const int listener = socket(AF_INET, SOCK_STREAM, 0);
      socklen_t length = sizeof a;
      must(bind(listener, reinterpret_cast<sockaddr*>(&a), length) == 0 && listen(listener, 1) == 0);
      getsockname(listener, reinterpret_cast<sockaddr*>(&a), &length);
      std::ofstream(path) << a.sin_port;
      h.barrier();
      fd = accept(listener, nullptr, nullptr);
      close(listener);
    } else {
      h.barrier();
      std::ifstream(path) >> a.sin_port;
      fd = socket(AF_INET, SOCK_STREAM, 0);
      must(connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
    }
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    h.barrier();
  }

  static void must(bool ok) {
    if (ok) return;
    std::perror("floor_tcp");
    std::exit(2);
  }

  // Sends `sends` and receives `receives` floats at the same time, so that neither waits for the other.
  void exchange(const float* out, size_t sends, float* in, size_t receives) {
    auto* from = reinterpret_cast<const char*>(out);
    auto* to = reinterpret_cast<char*>(in);
    size_t s = sends * 4, r = receives * 4;
    while (s + r > 0) {
      if (s > 0) {
        const ssize_t k = send(fd, from, s, MSG_DONTWAIT);
        must(k >= 0 || errno == EAGAIN);
        if (k > 0) from += k, s -= static_cast<size_t>(k);
      }
      if (r > 0) {
        const ssize_t k = recv(fd, to, r, MSG_DONTWAIT);
        must(k > 0 || (k < 0 && errno == EAGAIN));
        if (k > 0) to += k, r -= static_cast<size_t>(k);
      }
    }
  }

  static void add(float* __restrict to, const float* __restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += from[i];
  }

  bool supports(int op, size_t) {
    return op == peers::kAllReduce || op == peers::kBroadcast || op == peers::kReduceScatter ||
           op == peers::kAllGather || op == peers::kReduce;
  }
  void prepare(int, float*, float*, size_t count) {
    std::free(received);
    received = peers::make_buffer(count * 4);
  }

  void run(int op, float* buf, float* out, size_t count) {
    const size_t half = count / 2;
    float *mine = buf + h.rank * half, *theirs = buf + (1 - h.rank) * half;
    if (op == peers::kBroadcast) {
      h.rank == 0 ? exchange(buf, count, nullptr, 0) : exchange(nullptr, 0, buf, count);
    } else if (op == peers::kReduce) {
      if (h.rank == 1) return exchange(buf, count, nullptr, 0);
      exchange(nullptr, 0, out, count);
      add(out, buf, count);
    } else if (op == peers::kReduceScatter) {
      exchange(theirs, half, out, half);
      add(out, mine, half);
    } else if (op == peers::kAllGather) {
      float* own = out + h.rank * half;
      exchange(buf, half, out + (1 - h.rank) * half, half);
      std::memcpy(own, buf, half * 4);
    } else if (count * 4 < halves_from || count % 2) {
      exchange(buf, count, received, count);
      add(buf, received, count);
    } else {
      exchange(theirs, half, received, half);
      add(mine, received, half);
      exchange(mine, half, theirs, half);
    }
  }
};

int main(int argc, char** argv) {
  peers::Harness h(peers::env_int("PEER_RANK", 0), peers::env_int("PEER_SIZE", 1));
  Floor f(h);
  peers::run_suite(f, h, peers::Options(argc, argv));
  h.barrier();
}
