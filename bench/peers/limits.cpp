// Physical limits of this machine for two processes on CPUs 0 and 1.
// Prints one JSON line per measurement: name, bytes, value, unit, hop_ns.
// Every value is a median; hop_ns (see harness.h) tells near from far placement.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "harness.h"

using peers::now_us;
using Bytes = size_t;

struct Sync {
  alignas(128) std::atomic<uint32_t> a;
  alignas(128) std::atomic<uint32_t> b;
  alignas(128) double val[128];
  uint64_t ptr[2];
};
static Sync* sh;
static float* slot[2];  // kSlotBytes each, mapped before the fork
constexpr Bytes kSlotBytes = 16 << 20;
static int me;        // 0 or 1
static uint32_t seq;  // both processes run the same sequence

static void pin(int c) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(c, &s);
  sched_setaffinity(0, sizeof s, &s);
}
static void meet() {  // flags-exchange barrier: the cheapest there is
  const uint32_t k = ++seq;
  auto& mine = me ? sh->b : sh->a;
  auto& other = me ? sh->a : sh->b;
  mine.store(k, std::memory_order_release);
  while (static_cast<int32_t>(other.load(std::memory_order_acquire) - k) < 0) {
  }
}
static double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
static double both_max(double v) {
  sh->val[me] = v;
  meet();
  v = std::max(sh->val[0], sh->val[1]);
  meet();
  return v;
}
static double hop_ns() {
  std::vector<double> v;
  for (int c = 0; c < 9; c++) {
    const double t = now_us();
    for (int i = 0; i < 100; i++) {
      const uint32_t k = ++seq;
      if (me == 0) {
        sh->a.store(k, std::memory_order_release);
        while (static_cast<int32_t>(sh->b.load(std::memory_order_acquire) - k) < 0) {
        }
      } else {
        while (static_cast<int32_t>(sh->a.load(std::memory_order_acquire) - k) < 0) {
        }
        sh->b.store(k, std::memory_order_release);
      }
    }
    v.push_back((now_us() - t) * 1e3 / 200);
  }
  return both_max(median(v));
}
static void report(const char* name, Bytes bytes, double value, const char* unit) {
  pin(me);
  const double h = hop_ns();
  if (me == 0) {
    std::printf("{\"limit\":\"%s\",\"bytes\":%zu,\"value\":%.4g,\"unit\":\"%s\",\"hop_ns\":%.1f}\n", name, bytes, value,
                unit, h);
    std::fflush(stdout);
  }
}

// ---- memory kernels; "GB/s" counts the bytes of ONE array, as a library would.
using Kernel = void (*)(float*, float*, size_t);
static void k_memcpy(float* a, float* b, size_t n) { std::memcpy(a, b, n * 4); }
static void k_read(float*, float* b, size_t n) {
  float s[64] = {};
  for (size_t i = 0; i < n; i += 64)
    for (int j = 0; j < 64; j++) s[j] += b[i + j];
  asm volatile("" ::"m"(s) : "memory");
}
__attribute__((target("avx2"))) static void k_copy_nt(float* a, float* b, size_t n) {
  for (size_t i = 0; i < n; i += 8) _mm256_stream_ps(a + i, _mm256_loadu_ps(b + i));
  _mm_sfence();
}
__attribute__((target("avx2"))) static void k_add_avx2(float* a, float* b, size_t n) {
  for (size_t i = 0; i < n; i += 8)
    _mm256_storeu_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
}
__attribute__((target("avx512f"))) static void k_add_avx512(float* a, float* b, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    _mm512_storeu_ps(a + i, _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
}
static void k_add_sse(float* a, float* b, size_t n) {
  for (size_t i = 0; i < n; i += 4) _mm_storeu_ps(a + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
}
__attribute__((target("avx2"))) static void k_add_both(float* a, float* b, size_t n) {  // result to both arrays
  for (size_t i = 0; i < n; i += 8) {
    const __m256 s = _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i));
    _mm256_storeu_ps(a + i, s);
    _mm256_storeu_ps(b + i, s);
  }
}

static float* pages(Bytes bytes, bool shared, bool huge = false) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::exit(2);
  if (huge) madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<float*>(p);
}

static double rate(Kernel k, float* a, float* b, Bytes bytes, bool active) {
  std::vector<double> v;
  const int inner = std::max<int>(1, (4 << 20) / bytes), reps = bytes > (32 << 20) ? 5 : 25;
  for (int i = 0; i < reps + 2; i++) {
    meet();
    const double t = now_us();
    if (active)
      for (int j = 0; j < inner; j++) k(a, b, bytes / 4);
    if (i >= 2) v.push_back((now_us() - t) / inner);
  }
  return bytes / 1e3 / both_max(active ? median(v) : 0);
}

static void memory() {
  const Bytes max = 128 << 20;
  float* a = pages(max, false);
  float* b = pages(max, false);
  std::memset(a, 0, max);
  std::memset(b, 0, max);
  struct {
    const char* name;
    Kernel k;
    bool ok;
  } ks[] = {{"read", k_read, true},
            {"memcpy", k_memcpy, true},
            {"copy_nt_avx2", k_copy_nt, true},
            {"add_sse", k_add_sse, true},
            {"add_avx2", k_add_avx2, true},
            {"add_avx512", k_add_avx512, __builtin_cpu_supports("avx512f") != 0},
            {"add_both_avx2", k_add_both, true}};
  for (Bytes n : {Bytes(8 << 10), Bytes(256 << 10), Bytes(4 << 20), max})  // L1, L2, L3, DRAM
    for (auto& k : ks) {
      if (!k.ok) continue;
      const double one = rate(k.k, a, b, n, me == 0), two = rate(k.k, a, b, n, true);
      report((std::string(k.name) + " 1 core").c_str(), n, one, "GB/s");
      report((std::string(k.name) + " 2 cores, each").c_str(), n, two, "GB/s");
    }
  munmap(a, max);
  munmap(b, max);
}

// ---- between the two cores: the peer has just written, I read (both at once).
// Total = publish own buffer to a shared slot + meet + consume the peer's slot:
// the core of any shared-memory exchange of private buffers.
static void cross() {
  const Bytes max = kSlotBytes;
  float* priv = pages(max, false);
  std::memset(slot[me], 0, max);
  std::memset(priv, 0, max);
  for (Bytes n : {Bytes(64), Bytes(1 << 10), Bytes(8 << 10), Bytes(64 << 10), Bytes(256 << 10), Bytes(1 << 20), max})
    for (int nt = 0; nt < 2; nt++) {
      std::vector<double> pub, con, all;
      const int reps = static_cast<int>(std::clamp<Bytes>((64 << 20) / n, 15, 500));
      for (int i = 0; i < reps; i++) {
        for (Bytes j = 0; j < n / 4; j++) priv[j] = i;
        asm volatile("" ::: "memory");
        meet();
        const double t0 = now_us();
        (nt ? k_copy_nt : k_memcpy)(slot[me], priv, n / 4);
        const double t1 = now_us();
        meet();
        const double t2 = now_us();
        k_add_avx2(priv, slot[1 - me], n / 4);
        const double t3 = now_us();
        pub.push_back(t1 - t0);
        con.push_back(t3 - t2);
        all.push_back(t3 - t0);
      }
      const std::string how = nt ? "nt stores" : "plain stores";
      report(("exchange: publish, " + how).c_str(), n, both_max(median(pub)), "us");
      report(("exchange: add peer's, " + how).c_str(), n, both_max(median(con)), "us");
      report(("exchange: total, " + how).c_str(), n, both_max(median(all)), "us");
    }
  munmap(priv, max);
}

// ---- process_vm_readv (CMA)
static void cma() {
  const Bytes max = 64 << 20;
  for (int huge = 0; huge < 2; huge++) {
    float* src = pages(max, false, huge);
    float* dst = pages(max, false, huge);
    std::memset(src, 0, max);
    std::memset(dst, 0, max);
    sh->ptr[me] = reinterpret_cast<uint64_t>(src);
    sh->val[me] = getpid();
    meet();
    const pid_t peer = static_cast<pid_t>(sh->val[1 - me]);
    char* remote = reinterpret_cast<char*>(sh->ptr[1 - me]);
    bool permitted = true;
    for (Bytes n : {Bytes(64), Bytes(4 << 10), Bytes(64 << 10), Bytes(512 << 10), Bytes(4 << 20), max})
      for (int two = 0; two < 2; two++) {
        std::vector<double> v;
        const int reps = static_cast<int>(std::clamp<Bytes>((64 << 20) / n, 7, 300));
        for (int i = 0; i < reps; i++) {
          std::memset(src, i, std::min(n, Bytes(4 << 20)));
          meet();
          const double t = now_us();
          if (two || me == 0) {
            iovec l{dst, n}, r{remote, n};
            permitted &= process_vm_readv(peer, &l, 1, &r, 1, 0) == static_cast<ssize_t>(n);
          }
          v.push_back(now_us() - t);
        }
        const double t = both_max(two || me == 0 ? median(v) : 0);
        const std::string name = std::string("process_vm_readv ") + (huge ? "huge pages " : "4K pages ") +
                                 (two ? "both at once" : "one reader");
        if (permitted)
          report(name.c_str(), n, n < (64 << 10) ? t : n / 1e3 / t, n < (64 << 10) ? "us" : "GB/s");
        else
          report("process_vm_readv NOT PERMITTED", n, 0, "");
      }
    munmap(src, max);
    munmap(dst, max);
  }
}

// ---- latencies
// Round trips; both processes on CPU 0 if `together`.
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

// From the moment of sending until a receiver that has been asleep for a while
// is running again.
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

// Both processes send and receive `bytes` at once over `conns` connections: what
// every step of a TCP all_reduce of two ranks does. GB/s per direction.
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

// ---- cost of the first touch of memory
static void first_touch() {
  const Bytes n = 64 << 20;
  for (int kind = 0; kind < 3; kind++) {
    std::vector<double> v;
    for (int i = 0; i < 5; i++) {
      float* p = pages(n, kind == 1, kind == 2);
      const double t = now_us();
      std::memset(p, 1, n);
      v.push_back(now_us() - t);
      munmap(p, n);
    }
    const char* name[] = {"first touch, private 4K pages", "first touch, shared 4K pages",
                          "first touch, private huge pages"};
    report(name[kind], n, n / 1e3 / both_max(median(v)), "GB/s");
  }
}

int main(int argc, char** argv) {
  sh = reinterpret_cast<Sync*>(pages(1 << 16, true));
  for (float*& p : slot) p = pages(kSlotBytes, true);
  me = fork() == 0 ? 1 : 0;
  pin(me);
  const std::string which = argc > 1 ? argv[1] : "all";
  auto want = [&](const char* s) { return which == "all" || which.find(s) != std::string::npos; };
  if (want("latency")) latency();
  if (want("memory")) memory();
  if (want("cross")) cross();
  if (want("cma")) cma();
  if (want("tcp")) tcp();
  if (want("touch")) first_touch();
  if (me == 1) _exit(0);
  int st;
  wait(&st);
  return 0;
}
