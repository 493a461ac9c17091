// Latency and bandwidth of two processes by futexes, pipes, Unix sockets and TCP over loopback.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "limits_memory.h"

// ---- latencies Measures round trips; both processes are on CPU 0 if `together`.
template <class Send, class Recv>
static void ping_pong(const char* name, int rounds, Send send, Recv recv, bool together = false) {
  std::vector<double> v;
  for (int c = 0; c < 15; c++) {
    pin(me);
    meet();
    if (together) pin(0);
    send();  // both have left meet() when this exchange is over
    recv();
    const double t = now_us();
    for (int i = 0; i < rounds; i++) {
      if (me == 0) {
        send();
        recv();
      } else {
        recv();
        send();
      }
    }
    if (c >= 3) v.push_back((now_us() - t) / rounds / 2);
  }
  pin(me);
  report(name, 4, both_max(median(v)), "us one-way");
}

// Measures the time from sending until a receiver that has slept for a while runs again.
template <class Send, class Recv>
static void wake_up(const char* name, Send send, Recv recv) {
  std::vector<double> v;
  for (int i = 0; i < 300; i++) {
    meet();
    if (me == 0) {
      const double t = now_us();
      while (now_us() - t < 100) {
      }
      sh->val[2] = now_us();
      send();
    } else {
      recv();
      v.push_back(now_us() - sh->val[2]);
    }
    meet();
  }
  report(name, 4, both_max(me ? median(v) : 0), "us");
}

static void futex_call(std::atomic<uint32_t>* w, int op, uint32_t val) {
  syscall(SYS_futex, w, op, val, nullptr, nullptr, 0);
}

static void socket_pair_tcp(int* fd) {  // fd of this process, connected to the other
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (me == 0) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof a;
    if (bind(l, reinterpret_cast<sockaddr*>(&a), len) || listen(l, 1)) std::exit(2);
    getsockname(l, reinterpret_cast<sockaddr*>(&a), &len);
    sh->ptr[0] = a.sin_port;
    meet();
    *fd = accept(l, nullptr, nullptr);
    close(l);
  } else {
    meet();
    a.sin_port = static_cast<uint16_t>(sh->ptr[0]);
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(*fd, reinterpret_cast<sockaddr*>(&a), sizeof a)) std::exit(2);
  }
  int one = 1;
  setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}
static void must(bool ok) {
  if (!ok) {
    std::perror("limits");
    std::exit(2);
  }
}
static void blocking(int fd, bool on) { fcntl(fd, F_SETFL, on ? 0 : O_NONBLOCK); }

static void latency() {
  {
    std::vector<double> v;
    for (int c = 0; c < 15; c++) {
      const double t = now_us();
      for (int i = 0; i < 2000; i++) meet();
      v.push_back((now_us() - t) / 2000);
    }
    report("spin barrier, each writes its flag and reads the other's", 0, both_max(median(v)), "us");
    std::vector<double> w;
    static auto* count = reinterpret_cast<std::atomic<uint32_t>*>(sh->val + 8);
    static auto* gen = reinterpret_cast<std::atomic<uint32_t>*>(sh->val + 24);
    for (int c = 0; c < 15; c++) {
      meet();
      const double t = now_us();
      for (int i = 0; i < 2000; i++) {
        const uint32_t g = gen->load();
        if (count->fetch_add(1) == 1) {
          count->store(0);
          gen->store(g + 1);
        } else
          while (gen->load() == g) {
          }
      }
      w.push_back((now_us() - t) / 2000);
    }
    report("spin barrier, one atomic counter and a generation", 0, both_max(median(w)), "us");
  }
  auto* fa = reinterpret_cast<std::atomic<uint32_t>*>(sh->val + 40);
  auto* fb = reinterpret_cast<std::atomic<uint32_t>*>(sh->val + 56);
  auto& out = me ? *fb : *fa;
  auto& in = me ? *fa : *fb;
  auto fsend = [&] {
    out.fetch_add(1);
    futex_call(&out, FUTEX_WAKE, 1);
  };
  uint32_t got = 0;
  auto frecv = [&] {
    while (in.load() == got) futex_call(&in, FUTEX_WAIT, got);
    got++;
  };
  auto ysend = [&] { out.fetch_add(1); };
  auto yrecv = [&] {
    while (in.load() == got) sched_yield();
    got++;
  };
  ping_pong("futex, both on CPU 0", 1000, fsend, frecv, true);
  ping_pong("sched_yield while polling, both on CPU 0", 1000, ysend, yrecv, true);
  wake_up("futex wake of a sleeper", fsend, frecv);

  char byte[4] = {};
  int fd;
  socket_pair_tcp(&fd);
  auto bs = [&] { must(write(fd, byte, 4) == 4); };
  auto br = [&] { must(read(fd, byte, 4) == 4); };
  auto nr = [&] {
    while (read(fd, byte, 4) != 4) must(errno == EAGAIN);
  };
  auto pr = [&] {
    pollfd p{fd, POLLIN, 0};
    poll(&p, 1, -1);
    must(read(fd, byte, 4) == 4);
  };
  ping_pong("TCP loopback, blocking", 1000, bs, br);
  ping_pong("TCP loopback, poll() then read", 1000, bs, pr);
  wake_up("TCP loopback wake of a sleeper", bs, br);
  blocking(fd, false);
  ping_pong("TCP loopback, busy non-blocking read", 1000, bs, nr);
  close(fd);
  // Unix socket, with an abstract address.
  {
    struct {
      sa_family_t f;
      char path[32];
    } u{};
    u.f = AF_UNIX;
    const int len = static_cast<int>(sizeof(sa_family_t)) + 1 +
                    std::snprintf(u.path + 1, 30, "peers-limits-%d", me == 0 ? getpid() : getppid());
    if (me == 0) {
      int l = socket(AF_UNIX, SOCK_STREAM, 0);
      must(!bind(l, reinterpret_cast<sockaddr*>(&u), len) && !listen(l, 1));
      meet();
      fd = accept(l, nullptr, nullptr);
      close(l);
    } else {
      meet();
      fd = socket(AF_UNIX, SOCK_STREAM, 0);
      must(!connect(fd, reinterpret_cast<sockaddr*>(&u), len));
    }
    ping_pong("unix socket, blocking", 1000, bs, br);
    wake_up("unix socket wake of a sleeper", bs, br);
    blocking(fd, false);
    ping_pong("unix socket, busy non-blocking read", 1000, bs, nr);
    close(fd);
  }
}

// ---- TCP loopback bandwidth
static void one_way(const char* name, Bytes piece, bool zerocopy) {
  int fd;
  socket_pair_tcp(&fd);
  const Bytes total = 256 << 20;
  int one = 1;
  if (zerocopy) must(!setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one));
  float* buf = pages(4 << 20, false);
  std::memset(buf, 0, 4 << 20);
  std::vector<double> v;
  for (int rep = 0; rep < 6; rep++) {
    meet();
    const double t = now_us();
    for (Bytes done = 0; done < total;) {
      ssize_t k = me == 0 ? send(fd, buf, std::min(piece, total - done), zerocopy ? MSG_ZEROCOPY : 0)
                          : recv(fd, buf, std::min(piece, total - done), 0);
      if (k < 0 && errno == ENOBUFS) k = 0;
      must(k >= 0);
      done += k;
      if (zerocopy && me == 0) {  // reap completions
        char ctl[128];
        msghdr m{};
        do {
          m.msg_control = ctl;
          m.msg_controllen = sizeof ctl;
        } while (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0);
      }
    }
    if (rep) v.push_back((now_us() - t));
  }
  report(name, piece, total / 1e3 / both_max(median(v)), "GB/s");
  munmap(buf, 4 << 20);
  close(fd);
}

// Sends and receives `bytes` at once over `conns` connections, on both processes, as every step of a TCP all_reduce of
// two ranks does. GB/s per direction.
static void both_ways(const char* name, Bytes bytes, int conns, bool busy, Bytes piece, int sockbuf) {
  std::vector<int> fd(conns);
  for (int& f : fd) {
    socket_pair_tcp(&f);
    if (sockbuf) {
      setsockopt(f, SOL_SOCKET, SO_SNDBUF, &sockbuf, sizeof sockbuf);
      setsockopt(f, SOL_SOCKET, SO_RCVBUF, &sockbuf, sizeof sockbuf);
    }
    blocking(f, false);
  }
  char* tx = reinterpret_cast<char*>(pages(bytes, false));
  char* rx = reinterpret_cast<char*>(pages(bytes, false));
  std::memset(tx, 0, bytes);
  std::memset(rx, 0, bytes);
  const Bytes share = bytes / conns;
  std::vector<double> v;
  const int reps = static_cast<int>(std::clamp<Bytes>((512 << 20) / bytes, 6, 500));
  for (int rep = 0; rep < reps; rep++) {
    std::vector<Bytes> s(conns, 0), r(conns, 0);
    meet();
    const double t = now_us();
    for (int open = 2 * conns; open;) {
      bool moved = false;
      for (int c = 0; c < conns; c++) {
        if (s[c] < share) {
          const ssize_t k = send(fd[c], tx + c * share + s[c], std::min(piece, share - s[c]), 0);
          if (k > 0) {
            moved = true;
            if ((s[c] += k) == share) open--;
          }
        }
        if (r[c] < share) {
          const ssize_t k = recv(fd[c], rx + c * share + r[c], std::min(piece, share - r[c]), 0);
          if (k > 0) {
            moved = true;
            if ((r[c] += k) == share) open--;
          }
        }
      }
      if (!moved && !busy && open) {
        std::vector<pollfd> p;
        for (int c = 0; c < conns; c++)
          p.push_back({fd[c], static_cast<short>((s[c] < share ? POLLOUT : 0) | (r[c] < share ? POLLIN : 0)), 0});
        poll(p.data(), p.size(), -1);
      }
    }
    if (rep >= 2) v.push_back(now_us() - t);
  }
  report(name, bytes, bytes / 1e3 / both_max(median(v)), "GB/s");
  for (int f : fd) close(f);
  munmap(tx, bytes);
  munmap(rx, bytes);
}

static void tcp() {
  one_way("TCP one way, 1 connection, pieces of 64K", 64 << 10, false);
  one_way("TCP one way, 1 connection, pieces of 256K", 256 << 10, false);
  one_way("TCP one way, 1 connection, pieces of 1M", 1 << 20, false);
  one_way("TCP one way, 1 connection, pieces of 1M, MSG_ZEROCOPY", 1 << 20, true);
  for (Bytes n : {Bytes(4 << 10), Bytes(64 << 10), Bytes(512 << 10), Bytes(4 << 20), Bytes(64 << 20)}) {
    both_ways("TCP both ways, 1 connection, poll", n, 1, false, 256 << 10, 0);
    both_ways("TCP both ways, 1 connection, busy", n, 1, true, 256 << 10, 0);
    both_ways("TCP both ways, 2 connections, busy", n, 2, true, 256 << 10, 0);
    both_ways("TCP both ways, 1 connection, busy, pieces of 64K", n, 1, true, 64 << 10, 0);
    both_ways("TCP both ways, 1 connection, busy, 4M socket buffers", n, 1, true, 256 << 10, 4 << 20);
  }
}
