// The computation of a backward pass, the same for every peer.
#pragma once
#include "harness.h"

namespace peers {

// Computes in cache. Never inlined, so that the calibrated code is the code that runs.
[[gnu::noinline]] inline void work(size_t rounds) {
  static float values[1024];
  for (size_t r = 0; r < rounds; r++) {
    for (float& x : values) x = x * 0.999f + 0.001f;
    asm volatile("" ::: "memory");
  }
}

// Does the computation of a backward pass for `elements` gradients, beside writing them. $PEER_COMPUTE: none (default),
// busy (the core works in its cache), idle (another device works, as an accelerator); $PEER_COMPUTE_PS: picoseconds for
// each element. Sleeps of less than 100 us are added up to longer ones.
inline void compute(size_t elements) {
  static const char* const how = std::getenv("PEER_COMPUTE");
  static const double us_each = env_int("PEER_COMPUTE_PS", 4000) * 1e-6;
  if (!how || !std::strcmp(how, "none")) return;
  if (!std::strcmp(how, "idle")) {
    static double owed = 0;
    owed += static_cast<double>(elements) * us_each;
    if (owed < 100) return;
    usleep(static_cast<useconds_t>(owed));
    owed = 0;
    return;
  }
  // The number of rounds is fixed, not their time, so that a thread that takes the core away prolongs them.
  static const double us_per_round = [&] {
    double best = 1e9;
    for (int i = 0; i < 50; i++) {
      const double t = now_us();
      work(1000);
      best = std::min(best, (now_us() - t) / 1000);
    }
    return best;
  }();
  static double owed = 0;
  owed += static_cast<double>(elements) * us_each / us_per_round;
  work(static_cast<size_t>(owed));
  owed -= std::floor(owed);
}

}  // namespace peers
