// The two processes of limits.cpp, on CPUs 0 and 1: their shared memory, their barrier and their output.
#pragma once
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
static void meet() {  // a barrier by an exchange of flags, the cheapest one
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
