#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include <tutti/transport/sim/stream.hpp>

namespace {

using tutti::sim_random;
using tutti::sim_schedule;
using tutti::sim_stream;

constexpr std::size_t stack_bytes = 256 << 10;

struct report {
  std::vector<std::size_t> writes, reads;
  std::uint64_t trace = 0, steps = 0, missed = 0;
  bool whole = false, done = false;
};

/// Rank 0 writes `bytes` bytes, rank 1 reads them.
report transfer(std::uint64_t seed, std::size_t bytes, std::uint64_t rough) {
  sim_schedule s{2, seed};
  sim_stream stream{s, 0, 1, rough};
  std::vector<std::byte> out(bytes), in(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 256);
  report r;
  const auto wait = [&](int rank) {
    s.forget_news(rank);
    s.park(rank);
  };
  s.start(0, stack_bytes, [&] {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t header = std::min<std::size_t>(16, bytes - done);
      const std::span rest = std::span{out}.subspan(done);
      const std::size_t n = stream.write(rest.first(header), rest.subspan(header));
      if (n == 0)
        wait(0);
      else
        r.writes.push_back(n);
      done += n;
    }
  });
  s.start(1, stack_bytes, [&] {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t n = stream.read(std::span{in}.subspan(done));
      if (n == 0)
        wait(1);
      else
        r.reads.push_back(n);
      done += n;
    }
  });
  r.done = s.run([] {}, [] { return false; });
  r.whole = in == out && stream.drained();
  r.trace = s.trace();
  r.steps = s.steps();
  r.missed = s.missed_wakes();
  return r;
}

TEST_CASE("sim_stream: all bytes arrive in order, whatever the chunks") {
  std::set<std::size_t> chunks;
  std::size_t late = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{5000}}) {
      const report r = transfer(seed, bytes, seed % 9);
      CHECK(r.done);
      CHECK(r.whole);
      CHECK(r.missed == 0);
      chunks.insert(r.writes.begin(), r.writes.end());
      chunks.insert(r.reads.begin(), r.reads.end());
      late += r.steps > 3;
    }
  CHECK(chunks.contains(1));
  CHECK(chunks.contains(5000));
  CHECK(chunks.size() > 50);
  CHECK(late > 100);
}

TEST_CASE("sim_stream: a stream that is not rough cuts nothing") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) CHECK(transfer(seed, 5000, 0).writes.size() == 1);
}

TEST_CASE("sim_stream: a long message takes few steps on every stream") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const report r = transfer(seed, std::size_t{3} << 20, 8);
    CHECK(r.whole);
    CHECK(r.steps < 2000);
  }
}

// The numbers hold for every compiler and platform. They change with the simulator only, and then every seed that
// somebody has written down means another schedule.
TEST_CASE("sim_stream: a seed means the same schedule everywhere") {
  std::uint64_t digest = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const report r = transfer(seed, 5000, 8);
    CHECK(r.trace == transfer(seed, 5000, 8).trace);
    digest = sim_random::mix(digest ^ r.trace);
  }
  CHECK(digest == 9890406921887726139u);
}

}  // namespace
