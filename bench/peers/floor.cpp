// A reference instead of a peer: bare prototypes (no error handling, one host, one
// operation at a time, float sum) that show the limits of shared memory on this machine.
// $PEER_VARIANT:
//   shm   private user buffers. All_reduce: data with its flag in the first cache
//         line (small), copy-and-flag in cache-sized pieces (large; one-shot for
//         2 ranks, reduce-scatter + all-gather for more). Copies into the shared
//         slots use non-temporal stores from a size that depends on the hop.
//   plain the same with ordinary stores only.
//   zc    user buffers allocated in the shared segment, nothing is copied.
//   cma   private buffers, moved by process_vm_readv and writev; all_reduce as shm up to 64 KiB.
#include <immintrin.h>
#include <sys/uio.h>

#include "harness.h"

using peers::Op;
constexpr size_t kSlot = 256 << 10;     // bytes of one slot
constexpr size_t kSmall = 64 << 10;     // largest size that always takes the shm one-shot
constexpr size_t kRing = 16 << 20;      // bytes of the one-shot ring of one rank
constexpr size_t kHeap = 600ull << 20;  // shared heap of one rank, for zc

struct alignas(128) Line {
  std::atomic<uint64_t> step;  // phases that this rank has completed
  std::atomic<uint32_t> word;  // low half of step, for futex
  std::atomic<uint32_t> sleepers;
  uint64_t address;  // cma: user buffer
  int pid;
  alignas(64) std::atomic<uint32_t> flag[2];  // small messages: flag and data in one line
  float tiny[2][14];
};

struct Floor {
  peers::Harness& h;
  std::string variant;
  char* seg;
  int n, r;
  bool spin;
  bool private_buffers;
  uint64_t step = 0;
  uint32_t tiny_seq = 0;
  size_t heap_used = 0, ring_at = 0, ring_size = 4 << 20;
  float* tmp;
  size_t nt_from = ~size_t{0};  // bytes from which publishing uses non-temporal stores

  Line& line(int p) { return reinterpret_cast<Line*>(seg)[p]; }
  size_t head() const { return 64 << 10; }
  float* slot(int p, int k) { return reinterpret_cast<float*>(seg + head() + (p * 4 + k) * kSlot); }
  float* ring(int p) { return reinterpret_cast<float*>(seg + head() + n * 4 * kSlot + p * kRing); }
  char* heap(int p) { return seg + head() + n * (4 * kSlot + kRing) + p * kHeap; }

  Floor(peers::Harness& h_, const char* v) : h(h_), variant(v), n(h_.size), r(h_.rank) {
    private_buffers = variant == "shm" || variant == "plain";
    spin = n <= static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    const std::string path = std::string(std::getenv("PEER_DIR")) + "/segment";
    const size_t len = head() + n * (4 * kSlot + kRing + (variant == "zc" ? kHeap : 0));
    int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, len) != 0) std::exit(2);
    seg = static_cast<char*>(mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    std::memset(slot(r, 0), 0, 4 * kSlot);
    std::memset(ring(r), 0, kRing);
    line(r).pid = getpid();
    tmp = peers::make_buffer(kSlot);
    h.barrier();
  }

  float* allocate(size_t b) {
    if (variant != "zc") return peers::make_buffer(b);
    float* p = reinterpret_cast<float*>(heap(r) + heap_used);
    heap_used += (std::max<size_t>(b, 4096) + 4095) / 4096 * 4096;
    std::memset(p, 0, b);
    return p;
  }
  void release(float* p) {
    if (variant == "zc")
      heap_used = 0;
    else
      std::free(p);
  }

  template <class F>
  void wait(std::atomic<uint32_t>* futex_word, std::atomic<uint32_t>* sleepers, F reached) {
    for (int i = 0; !reached(); i++) {
      if (spin) continue;
      if (i < 20)
        sched_yield();
      else if (futex_word) {
        const uint32_t w = futex_word->load();
        sleepers->fetch_add(1);
        if (!reached()) syscall(SYS_futex, futex_word, FUTEX_WAIT, w, nullptr, nullptr, 0);
        sleepers->fetch_sub(1);
      } else
        sched_yield();
    }
  }
  void post() {
    Line& l = line(r);
    l.step.store(++step, spin ? std::memory_order_release : std::memory_order_seq_cst);
    if (!spin) {
      l.word.store(static_cast<uint32_t>(step));
      if (l.sleepers.load()) syscall(SYS_futex, &l.word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }
  void wait_for(int p, uint64_t s) {
    Line& l = line(p);
    wait(&l.word, &l.sleepers, [&] { return l.step.load(std::memory_order_acquire) >= s; });
  }
  void wait_all() {
    for (int p = 0; p < n; p++)
      if (p != r) wait_for(p, step);
  }

  static void add(float* __restrict a, const float* __restrict b, size_t c) {
    for (size_t i = 0; i < c; i++) a[i] += b[i];
  }

  // Plain stores to lines that another core has just read must first regain ownership of each; non-temporal stores need
  // not.
  void publish(float* dst, const float* src, size_t c) {
    if (c * 4 < nt_from) {
      std::memcpy(dst, src, c * 4);
      return;
    }
    size_t i = 0;
    for (; i < c && reinterpret_cast<uintptr_t>(dst + i) % 32; i++) dst[i] = src[i];
    for (; i + 8 <= c; i += 8) _mm256_stream_ps(dst + i, _mm256_loadu_ps(src + i));
    for (; i < c; i++) dst[i] = src[i];
    _mm_sfence();
  }

  // Reduces at most 14 floats: one cache line carries flag and data.
  void tiny(float* buf, size_t c) {
    const uint32_t q = ++tiny_seq;
    const int k = q & 1;
    Line& l = line(r);
    for (size_t i = 0; i < c; i++) l.tiny[k][i] = buf[i];
    l.flag[k].store(q, std::memory_order_release);
    float s[14] = {};
    for (int p = 0; p < n; p++) {
      if (p != r) wait(nullptr, nullptr, [&] { return line(p).flag[k].load(std::memory_order_acquire) == q; });
      for (size_t i = 0; i < c; i++) s[i] += line(p).tiny[k][i];
    }
    for (size_t i = 0; i < c; i++) buf[i] = s[i];
  }

  // Every rank publishes all its data and adds that of all others. Two slots suffice: a rank posts step k after it has
  // seen step k-1 of all ranks, so none still reads k-2. A ring larger than the L2 cache is faster if the cores are
  // near: lines that have left the reader's L2 need not be fetched back from there.
  void one_shot(float* buf, size_t c) {
    const size_t at = reserve(c);
    publish(ring(r) + at, buf, c);
    post();
    wait_all();
    for (int p = 0; p < n; p++)
      if (p != r) add(buf, ring(p) + at, c);  // a real library adds in rank order
  }

  // Reduces one slot-sized piece by reduce-scatter and all-gather.
  void two_phase(float* buf, size_t c, int k) {
    const size_t part = (c / n + 15) / 16 * 16;
    auto lo = [&](int p) { return std::min(c, p * part); };
    for (int p = 0; p < n; p++)
      if (p != r) publish(slot(r, k) + lo(p), buf + lo(p), lo(p + 1) - lo(p));
    post();
    wait_all();
    float* mine = buf + lo(r);
    const size_t len = lo(r + 1) - lo(r);
    for (int p = 0; p < n; p++)
      if (p != r) add(mine, slot(p, k) + lo(r), len);
    publish(slot(r, k) + lo(r), mine, len);
    post();
    wait_all();
    for (int p = 0; p < n; p++)
      if (p != r) std::memcpy(buf + lo(p), slot(p, k) + lo(p), (lo(p + 1) - lo(p)) * 4);
  }

  void zero_copy(float* buf, size_t c) {
    show(buf);
    wait_all();
    float* b[peers::kMaxRanks];
    for (int p = 0; p < n; p++) b[p] = shown_by(p);
    const size_t part = (c / n + 15) / 16 * 16, lo = std::min(c, r * part), hi = std::min(c, lo + part);
    if (n == 2) {
      float* __restrict x = b[0];
      float* __restrict y = b[1];
      for (size_t i = lo; i < hi; i++) x[i] = y[i] = x[i] + y[i];
    } else {
      for (size_t o = lo; o < hi; o += 2048) {  // cache-sized pieces
        const size_t m = std::min<size_t>(2048, hi - o);
        for (int p = 0; p < n; p++)
          if (p != r) add(b[r] + o, b[p] + o, m);
        for (int p = 0; p < n; p++)
          if (p != r) std::memcpy(b[p] + o, b[r] + o, m * 4);
      }
    }
    meet();
  }

  void pull(int p, float* dst, const float* src_in_peer, size_t bytes) {
    iovec l{dst, bytes}, m{const_cast<float*>(src_in_peer), bytes};
    if (process_vm_readv(line(p).pid, &l, 1, &m, 1, 0) != static_cast<ssize_t>(bytes)) std::exit(3);
  }
  void cma(float* buf, size_t c) {
    show(buf);
    wait_all();
    const size_t part = (c / n + 1023) / 1024 * 1024;
    auto lo = [&](int p) { return std::min(c, p * part); };
    for (size_t o = lo(r); o < lo(r + 1); o += kSlot / 4) {
      const size_t m = std::min(kSlot / 4, lo(r + 1) - o);
      for (int p = 0; p < n; p++)
        if (p != r) {
          pull(p, tmp, shown_by(p) + o, m * 4);
          add(buf + o, tmp, m);
        }
    }
    meet();
    for (int i = 1; i < n; i++) {
      const int p = (r + i) % n;
      if (lo(p + 1) > lo(p)) pull(p, buf + lo(p), shown_by(p) + lo(p), (lo(p + 1) - lo(p)) * 4);
    }
    meet();
  }

  // Copies from rank `from`'s array: by the kernel if the memory is private, else by the core.
  void take(int from, float* dst, const float* src, size_t bytes) {
    if (variant == "cma")
      pull(from, dst, src, bytes);
    else
      std::memcpy(dst, src, bytes);
  }
  void give(int to, float* dst, const float* src, size_t bytes) {
    if (variant != "cma") {
      std::memcpy(dst, src, bytes);
      return;
    }
    iovec l{const_cast<float*>(src), bytes}, m{dst, bytes};
    if (process_vm_writev(line(to).pid, &l, 1, &m, 1, 0) != static_cast<ssize_t>(bytes)) std::exit(3);
  }
  void show(const float* mine) {
    line(r).address =
        variant == "zc" ? reinterpret_cast<const char*>(mine) - heap(r) : reinterpret_cast<uint64_t>(mine);
    post();
  }
  float* shown_by(int p) {
    return reinterpret_cast<float*>(line(p).address + (variant == "zc" ? reinterpret_cast<uint64_t>(heap(p)) : 0));
  }
  void meet() {
    post();
    wait_all();
  }
  // Reserves space in this rank's ring, at the same offset on all ranks.
  size_t reserve(size_t c) {
    const size_t room = (c + 63) / 64 * 64;
    if (ring_at + room > ring_size / 4) ring_at = 0;
    ring_at += room;
    return ring_at - room;
  }

  // Copies each block directly from its owner's memory.
  void direct_gather(const float* in, float* out, size_t block) {
    show(in);
    std::memcpy(out + r * block, in, block * 4);
    wait_all();
    for (int i = 1; i < n; i++) {
      const int p = (r + i) % n;
      take(p, out + p * block, shown_by(p), block * 4);
    }
    meet();
  }
  void staged_gather(const float* in, float* out, size_t block) {
    const size_t piece = chunk_bytes() / 4;
    for (size_t o = 0; o < block; o += piece) {
      const size_t m = std::min(piece, block - o), at = reserve(m);
      publish(ring(r) + at, in + o, m);
      post();
      std::memcpy(out + r * block + o, in + o, m * 4);
      wait_all();
      for (int p = 0; p < n; p++)
        if (p != r) std::memcpy(out + p * block + o, ring(p) + at, m * 4);
    }
  }
  void direct_reduce_scatter(const float* in, float* out, size_t block) {
    show(in);
    wait_all();
    const size_t piece = variant == "zc" ? 2048 : chunk_bytes() / 4;
    for (size_t o = 0; o < block; o += piece) {
      const size_t m = std::min(piece, block - o);
      std::memcpy(out + o, in + r * block + o, m * 4);
      for (int p = 0; p < n; p++) {
        if (p == r) continue;
        const float* theirs = shown_by(p) + r * block + o;
        if (variant == "cma") {
          pull(p, tmp, theirs, m * 4);
          theirs = tmp;
        }
        add(out + o, theirs, m);
      }
    }
    meet();
  }
  void staged_reduce_scatter(const float* in, float* out, size_t block) {
    const size_t piece = chunk_bytes() / 4 / (n - 1) / 16 * 16;
    for (size_t o = 0; o < block; o += piece) {
      const size_t m = std::min(piece, block - o), at = reserve(m * n);
      for (int p = 0; p < n; p++)
        if (p != r) publish(ring(r) + at + p * m, in + p * block + o, m);
      post();
      std::memcpy(out + o, in + r * block + o, m * 4);
      wait_all();
      for (int p = 0; p < n; p++)
        if (p != r) add(out + o, ring(p) + at + r * m, m);
    }
  }
  // Broadcasts between two ranks: the root writes the second half while the other reads the first.
  void direct_broadcast(float* buf, size_t c) {
    show(buf);
    wait_all();
    const size_t first = n == 2 ? c / 32 * 16 : c;
    if (r)
      take(0, buf, shown_by(0), first * 4);
    else if (first < c)
      give(1, shown_by(1) + first, buf + first, (c - first) * 4);
    meet();
  }
  void staged_broadcast(float* buf, size_t c) {
    for (size_t o = 0; o < c; o += kSlot / 8, buf += kSlot / 8) {  // pieces of half a slot
      const size_t m = std::min(kSlot / 8, c - o);
      const int k = (step + 1) & 3;
      if (r == 0) {  // a slot is free again once all ranks have read the piece of 4 steps before
        for (int p = 1; p < n && step >= 4; p++) wait_for(p, step - 3);
        publish(slot(0, k), buf, m);
        post();
      } else {
        wait_for(0, step + 1);
        std::memcpy(buf, slot(0, k), m * 4);
        post();
      }
    }
  }

  static size_t chunk_bytes() { return peers::env_int("PEER_PIECE", 128 << 10); }
  bool supports(int op, size_t) { return op != peers::kBarrier || variant == "shm"; }
  void prepare(int, float*, float*, size_t) {
    const double hop = h.probe_hop();
    if (variant != "plain") nt_from = peers::env_int("PEER_NT", hop > 120 ? 4 << 10 : 1 << 30);
    ring_size = peers::env_int("PEER_RING", variant == "plain" ? 512 << 10 : 4 << 20);
  }
  void run(int op, float* buf, float* out, size_t c) {
    const size_t block = c / n;
    if (op == peers::kBarrier)
      meet();
    else if (op == peers::kAllGather)
      private_buffers ? staged_gather(buf, out, block) : direct_gather(buf, out, block);
    else if (op == peers::kReduceScatter)
      private_buffers ? staged_reduce_scatter(buf, out, block) : direct_reduce_scatter(buf, out, block);
    else if (op == peers::kBroadcast)
      private_buffers ? staged_broadcast(buf, c) : direct_broadcast(buf, c);
    else
      all_reduce(buf, c);
  }

  void all_reduce(float* buf, size_t c) {
    if (c <= 14) {
      tiny(buf, c);
    } else if (c * 4 <= kSmall || (private_buffers && n == 2)) {
      const size_t piece = (n == 2 ? chunk_bytes() : kSlot) / 4;
      for (size_t o = 0; o < c; o += piece) one_shot(buf + o, std::min(piece, c - o));
    } else if (private_buffers) {
      for (size_t o = 0, i = 0; o < c; o += kSlot / 4, i++) two_phase(buf + o, std::min(kSlot / 4, c - o), 2 + (i & 1));
    } else if (variant == "zc") {
      zero_copy(buf, c);
    } else {
      cma(buf, c);
    }
  }
};

int main(int argc, char** argv) {
  peers::Harness h(peers::env_int("PEER_RANK", 0), peers::env_int("PEER_SIZE", 1));
  const char* v = std::getenv("PEER_VARIANT");
  Floor f(h, v ? v : "shm");
  peers::run_suite(f, h, peers::Options(argc, argv));
  h.barrier();
}
