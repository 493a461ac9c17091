// The measuring harness of all peers and of tutti: the same code times all of them,
// so that the numbers differ only by the code that is measured.
//
// Processes find each other through one file-backed shared mapping, $PEER_SHM,
// made and zeroed by run.py. Its barrier is independent of the peer under test.
//
// Per (operation, size), after warm-up:
//   call   every rank rewrites its own buffer (as a backward pass would: otherwise
//          repeated calls on unchanged buffers find every cache line in the same
//          cache as before), harness barrier, then ONE call; duration = max over ranks
//          of (leave - enter). Median and p99 over the iterations.
//   loop   batches (about 1 ms, at least one call) of back-to-back calls with no
//          rewriting and no harness barrier inside; duration = max over ranks of (batch time /
//          calls). Median of the batches.
//   cpu    user+system CPU time per call, summed over ranks, in the loop phase.
// $PEER_SPIN=0 makes the harness barrier sleep instead of spin: needed for peers
// with helper threads (gloo, torch), which a spinning rank would starve.
//
// Each cell also carries the one-way latency of a cache line between
// CPUs 0 and 1, probed right before (hop_ns) and right after (hop2_ns) the cell. On a
// virtual machine the host may move the virtual CPUs between "near" (sharing an
// L3) and "far" (across chips); compare only cells with the same kind of hop.
//
// An adaptor provides (sizes are those of the larger buffer, as a whole, in floats, as in nccl-tests):
//   bool supports(op, count);
//   void prepare(op, buf, out, count);  once per cell, untimed
//   void run(op, buf, out, count);      the timed call
//   float* allocate(bytes);             optional: user buffers from the peer's own
//   void release(float*);               allocator instead of private memory
// where op is one of the Op values below, with root 0 if it has a root.
//
// "other_pct" is the share of the whole machine that other programs used during
// the cell; do not trust a cell in which it is not close to zero.
#pragma once
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace peers {

constexpr int kMaxRanks = 64;
constexpr int kMaxIters = 4096;

struct Shared {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;
  alignas(64) std::atomic<uint32_t> ping;
  alignas(64) std::atomic<uint32_t> pong;
  alignas(64) double value[kMaxRanks];
  uint32_t probe_seq;
  double sample[kMaxRanks][kMaxIters];
};

inline double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

inline double cpu_us() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

// Returns the busy time of the whole machine so far, in ticks of 10 ms.
inline double machine_busy_us() {
  FILE* f = std::fopen("/proc/stat", "r");
  double v[8] = {};
  if (f) {
    if (std::fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) != 8)
      v[0] = 0;
    std::fclose(f);
  }
  return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) * 1e6 / sysconf(_SC_CLK_TCK);
}

class Harness {
 public:
  const int rank, size;

  Harness(int rank_, int size_) : rank(rank_), size(size_) {
    const char* path = std::getenv("PEER_SHM");
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) {
      std::perror("PEER_SHM");
      std::exit(2);
    }
    void* p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) std::exit(2);
    shm_ = static_cast<Shared*>(p);
    const char* spin = std::getenv("PEER_SPIN");
    spin_ = spin ? std::atoi(spin) != 0 : size <= static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  }

  // Spins when every rank has a core; sleeps in a futex when oversubscribed, so that a rank that waits here takes no
  // time from one that computes.
  void barrier() {
    uint32_t gen = shm_->generation.load(std::memory_order_acquire);
    if (shm_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size)) {
      shm_->arrived.store(0, std::memory_order_relaxed);
      shm_->generation.store(gen + 1, std::memory_order_release);
      if (!spin_) futex(FUTEX_WAKE, INT_MAX);
      return;
    }
    while (shm_->generation.load(std::memory_order_acquire) == gen) {
      if (spin_)
        __builtin_ia32_pause();
      else
        futex(FUTEX_WAIT, static_cast<int>(gen));
    }
  }

  // Returns the one-way latency of a cache line between rank 0 and the other ranks, in ns: the longest, so that near
  // pairs do not hide a far one.
  double probe_hop() {
    double ns = 0;
    if (size > 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
      for (int other = 1; other < std::min<int>(size, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))); other++)
        ns = std::max(ns, probe_hop_to(other));
    return ns;
  }
  double probe_hop_to(int other) {
    double ns = 0;
    barrier();
    if (rank == 0 || rank == other) {
      cpu_set_t old, one;
      sched_getaffinity(0, sizeof old, &old);
      CPU_ZERO(&one);
      CPU_SET(rank, &one);
      sched_setaffinity(0, sizeof one, &one);
      const int chunks = 10, per = 100;
      const uint32_t base = shm_->probe_seq;
      double best[chunks];
      for (int c = 0, k = 1; c < chunks; c++) {
        const double t = now_us();
        for (int i = 0; i < per; i++, k++) {
          if (rank == 0) {
            shm_->ping.store(base + k, std::memory_order_release);
            while (shm_->pong.load(std::memory_order_acquire) != base + k) {
            }
          } else {
            while (shm_->ping.load(std::memory_order_acquire) != base + k) {
            }
            shm_->pong.store(base + k, std::memory_order_release);
          }
        }
        best[c] = (now_us() - t) * 1e3 / per / 2;
      }
      std::sort(best, best + chunks);
      ns = best[chunks / 2];
      sched_setaffinity(0, sizeof old, &old);
    }
    barrier();
    if (rank == 0) shm_->probe_seq += 1000000;
    return max_over_ranks(ns);
  }

  double max_over_ranks(double v) { return reduce(v, true); }
  double sum_over_ranks(double v) { return reduce(v, false); }

  double* samples() { return shm_->sample[rank]; }

  // Returns the element-wise maximum over the ranks of their first `iters` samples, sorted.
  std::vector<double> sorted_samples(int iters) {
    barrier();
    std::vector<double> s(iters, 0.0);
    for (int i = 0; i < iters; i++)
      for (int r = 0; r < size; r++) s[i] = std::max(s[i], shm_->sample[r][i]);
    barrier();
    std::sort(s.begin(), s.end());
    return s;
  }

 private:
  void futex(int op, int val) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&shm_->generation), op, val, nullptr, nullptr, 0);
  }
  double reduce(double v, bool max) {
    shm_->value[rank] = v;
    barrier();
    double r = shm_->value[0];
    for (int i = 1; i < size; i++) r = max ? std::max(r, shm_->value[i]) : r + shm_->value[i];
    barrier();
    return r;
  }
  Shared* shm_;
  bool spin_;
};

enum Op {
  kAllReduce,
  kBroadcast,
  kBarrier,
  kReduceScatter,  // this and the next ones are out of place
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kReduce,  // this and the next ones have no blocks
  kScan,
  kOps
};
inline const char* op_name(int op) {
  static const char* n[] = {"all_reduce", "broadcast", "barrier",    "reduce_scatter", "all_gather",
                            "gather",     "scatter",   "all_to_all", "reduce",         "scan"};
  return n[op];
}

struct Options {
  std::vector<int> ops{kAllReduce, kBroadcast, kBarrier, kReduceScatter, kAllGather};
  std::vector<size_t> sizes{4, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 25 << 20, 64 << 20, 256 << 20};
  double budget_us = 300e3;  // time for each phase of each cell
  double rest_us = 0;        // sleep before each cell

  Options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
      std::string k = argv[i];
      std::string list = argv[i + 1];
      std::vector<std::string> v;
      for (char* t = std::strtok(list.data(), ","); t; t = std::strtok(nullptr, ",")) v.push_back(t);
      if (k == "--sizes") {
        sizes.clear();
        for (auto& s : v) sizes.push_back(std::stoull(s));
      } else if (k == "--budget") {
        budget_us = std::stod(v.at(0)) * 1e6;
      } else if (k == "--rest") {
        rest_us = std::stod(v.at(0)) * 1e6;
      } else if (k == "--ops") {
        ops.clear();
        for (auto& s : v)
          for (int o = 0; o < kOps; o++)
            if (s == op_name(o)) ops.push_back(o);
      }
    }
  }
};

// Allocates a user buffer: ordinary private memory, page-aligned and touched.
inline float* make_buffer(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 4096, std::max<size_t>(bytes, 4096)) != 0) std::exit(2);
  std::memset(p, 0, std::max<size_t>(bytes, 4096));
  return static_cast<float*>(p);
}

// Rewrites a buffer by plain vector stores. The compiler does not know the value, so it cannot use memset, whose
// streaming stores would leave large buffers out of the cache.
inline void rewrite(float* p, size_t count) {
  float v = 0;
  asm volatile("" : "+x"(v));
  for (size_t i = 0; i < count; i++) p[i] = v;
  asm volatile("" ::: "memory");
}

// Fills the buffers, calls the operation once and checks every element on every rank.
template <class A>
bool verify(A& a, Harness& h, int op, float* buf, float* out, size_t count) {
  const size_t part = count / h.size;
  auto in = [&](int r, size_t i) { return static_cast<float>((i * 7 + r * 13) % 101); };
  for (size_t i = 0; i < count; i++) buf[i] = in(h.rank, op == kAllGather || op == kGather ? i % part : i);
  if (out) std::memset(out, 0, count * sizeof(float));
  h.barrier();
  a.run(op, buf, out, count);
  bool ok = true;
  auto sum_of = [&](int ranks, size_t i) {
    float s = 0;
    for (int r = 0; r < ranks; r++) s += in(r, i);
    return s;
  };
  auto sum = [&](size_t i) { return sum_of(h.size, i); };
  if (op == kAllReduce)
    for (size_t i = 0; i < count; i++) ok &= buf[i] == sum(i);
  if (op == kBroadcast)
    for (size_t i = 0; i < count; i++) ok &= buf[i] == in(0, i);
  if (op == kReduceScatter)
    for (size_t i = 0; i < part; i++) ok &= out[i] == sum(h.rank * part + i);
  if (op == kAllGather || (op == kGather && h.rank == 0))
    for (size_t i = 0; i < part * h.size; i++) ok &= out[i] == in(static_cast<int>(i / part), i % part);
  if (op == kScatter)
    for (size_t i = 0; i < part; i++) ok &= out[i] == in(0, h.rank * part + i);
  if (op == kAllToAll)
    for (size_t i = 0; i < count; i++) ok &= out[i] == in(static_cast<int>(i / part), h.rank * part + i % part);
  if (op == kReduce && h.rank == 0)
    for (size_t i = 0; i < count; i++) ok &= out[i] == sum(i);
  if (op == kScan)
    for (size_t i = 0; i < count; i++) ok &= out[i] == sum_of(h.rank + 1, i);
  std::memset(buf, 0, count * sizeof(float));  // zeros stay zeros under sum
  return h.max_over_ranks(ok ? 0 : 1) == 0;
}

template <class A>
void run_suite(A& a, Harness& h, const Options& o) {
  h.barrier();
  usleep(500000);  // the launcher still starts up, which would affect the first cell
  for (int op : o.ops) {
    std::vector<size_t> sizes = op == kBarrier ? std::vector<size_t>{0} : o.sizes;
    for (size_t bytes : sizes) {
      const size_t count = bytes / sizeof(float);
      const bool split = op >= kReduceScatter && op < kReduce;
      if (!a.supports(op, count) || (split && (count % h.size || count < static_cast<size_t>(h.size)))) continue;
      auto make = [&](size_t b) {
        if constexpr (requires { a.allocate(b); })
          return a.allocate(b);
        else
          return make_buffer(b);
      };
      auto drop = [&](float* p) {
        if constexpr (requires { a.release(p); })
          a.release(p);
        else
          std::free(p);
      };
      float* buf = make(bytes);
      float* out = op >= kReduceScatter ? make(bytes) : nullptr;
      a.prepare(op, buf, out, count);
      const bool ok = op == kBarrier || verify(a, h, op, buf, out, count);

      // Warm-up, doubled until 50 ms or 64 calls; also estimates the time of a call.
      double est = 0;
      for (int k = 1, done = 0; done < 64; done += k, k *= 2) {
        h.barrier();
        double t = now_us();
        for (int i = 0; i < k; i++) a.run(op, buf, out, count);
        t = h.max_over_ranks(now_us() - t);
        est = std::max(t / k, 0.05);
        if (t > 50e3) break;
      }
      const int iters = static_cast<int>(std::clamp(o.budget_us / est, 5.0, 2000.0));
      if (o.rest_us > 0) usleep(static_cast<useconds_t>(o.rest_us));
      const double hop = h.probe_hop(), wall0 = now_us(), busy0 = machine_busy_us(), own0 = cpu_us();
      for (int i = 0; i < iters; i++) {
        rewrite(buf, count);
        h.barrier();
        const double t = now_us();
        a.run(op, buf, out, count);
        h.samples()[i] = now_us() - t;
      }
      std::vector<double> s = h.sorted_samples(iters);

      const int per = static_cast<int>(std::clamp(1000.0 / est, 1.0, 5000.0));
      const int batches = static_cast<int>(std::clamp(o.budget_us / (est * per), 5.0, 301.0));
      double cpu = 0;
      for (int b = 0; b < batches; b++) {
        h.barrier();
        const double c = cpu_us(), t = now_us();
        for (int i = 0; i < per; i++) a.run(op, buf, out, count);
        h.samples()[b] = (now_us() - t) / per;
        cpu += cpu_us() - c;
      }
      cpu = h.sum_over_ranks(cpu) / (static_cast<double>(batches) * per);
      std::vector<double> l = h.sorted_samples(batches);
      const double own = h.sum_over_ranks(cpu_us() - own0);
      const double other =
          std::max(0.0, machine_busy_us() - busy0 - own) * 100 / ((now_us() - wall0) * sysconf(_SC_NPROCESSORS_ONLN));
      const double hop2 = h.probe_hop();
      if (h.rank == 0) {
        std::printf(
            "{\"op\":\"%s\",\"n\":%d,\"bytes\":%zu,\"call_min_us\":%.3f,\"call_us\":%.3f,\"call_p99_us\":%.3f,"
            "\"loop_us\":%.3f,\"cpu_us\":%.3f,\"iters\":%d,\"hop_ns\":%.1f,\"hop2_ns\":%.1f,\"other_pct\":%.1f,"
            "\"ok\":%s}\n",
            op_name(op), h.size, bytes, s[0], s[s.size() / 2], s[s.size() * 99 / 100], l[l.size() / 2], cpu, iters, hop,
            hop2, other, ok ? "true" : "false");
        std::fflush(stdout);
      }
      drop(buf);
      if (out) drop(out);
    }
  }
}

inline int env_int(const char* k, int dflt) {
  const char* v = std::getenv(k);
  return v ? std::atoi(v) : dflt;
}

}  // namespace peers
