// Memory limits of two processes: kernels over private and shared arrays, hand-overs, process_vm_readv, first touch.
#pragma once
#include <errno.h>
#include <immintrin.h>
#include <sys/uio.h>

#include "limits.h"

// ---- memory kernels; "GB/s" counts the bytes of one array, as a library would.
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

// ---- between the two cores: each process reads data that the other has just written. The total is: copy the own
// buffer to a shared slot, meet, read the peer's slot, as in every exchange of private buffers by shared memory.
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
