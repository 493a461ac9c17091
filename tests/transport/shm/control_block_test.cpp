#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <tutti/transport/shm/control_block.hpp>
#include <vector>

#include "transport/drive.hpp"

namespace {

using tutti::shm_control_block;

struct memory_for {
  explicit memory_for(int ranks)
      : words((shm_control_block::bytes(ranks) + sizeof(line) - 1) / sizeof(line)),
        area(reinterpret_cast<std::byte*>(words.data()), ranks) {}
  struct alignas(4096) line {
    std::byte bytes[4096]{};
  };
  std::vector<line> words;
  shm_control_block area;
};

}  // namespace

TEST_CASE("rings are powers of two and shrink as ranks grow") {
  std::size_t before = shm_control_block::ring_bytes(1);
  for (int n = 1; n <= 4096; ++n) {
    const std::size_t now = shm_control_block::ring_bytes(n);
    CHECK_MESSAGE((std::has_single_bit(now) && now <= before && now >= 4096), n);
    if (n <= 1024) CHECK_MESSAGE(now * static_cast<std::size_t>(n) <= std::size_t{4} << 20, n);
    before = now;
  }
}

TEST_CASE("no two blocks or rings share memory, and all lie inside") {
  constexpr int n = 3;
  memory_for m{n};
  const auto* begin = reinterpret_cast<const std::byte*>(m.words.data());
  for (int r = 0; r < n; ++r) {
    const auto at = reinterpret_cast<const std::byte*>(&m.area.block(r)) - begin;
    CHECK(at >= 4096);
    CHECK(at % 64 == 0);
    m.area.block(r).issued = static_cast<std::uint64_t>(r) + 1;
    m.area.block(r).beacon.state = tutti::os::beacon_word::phase::left;
  }
  // Fills every ring to the brim with its own value; whatever overlapped would be overwritten.
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) {
      const std::vector<std::byte> full(shm_control_block::ring_bytes(n), static_cast<std::byte>(from * n + to + 1));
      CHECK(m.area.writer(from, to).write(full, {}) == full.size());
    }
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to) {
      const std::vector<std::byte> full(shm_control_block::ring_bytes(n), static_cast<std::byte>(from * n + to + 1));
      std::vector<std::byte> got(full.size());
      CHECK(m.area.reader(from, to).read(got) == full.size());
      CHECK(got == full);
    }
  for (int r = 0; r < n; ++r) {
    CHECK(m.area.block(r).issued == static_cast<std::uint64_t>(r) + 1);
    CHECK(m.area.block(r).beacon.state.load() == tutti::os::beacon_word::phase::left);
  }
  CHECK(m.area.failure().ok());
  const auto* last = reinterpret_cast<const std::byte*>(m.words.data()) + shm_control_block::bytes(n) - 1;
  CHECK(*last == static_cast<std::byte>(n * n));  // the area is as long as it says, no longer
}

TEST_CASE("the first cause of failure stays") {
  memory_for m{2};
  CHECK(m.area.failure().ok());
  m.area.fail({tutti::errc::peer_lost, 0, 1, 0});
  m.area.fail({tutti::errc::timed_out, 0, 0, 7});
  CHECK(m.area.failure() == tutti::status{tutti::errc::peer_lost, 0, 1, 0});
}

TEST_CASE("a cause stays with its detail, whatever it is, and gets no other's") {
  for (const std::uint64_t detail : {std::uint64_t{1}, std::uint64_t{65535}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    for (const auto code : {tutti::errc::aborted, tutti::errc::mismatch, tutti::errc::system, tutti::last_errc})
      for (const int peer : {-1, 0, 300}) {
        memory_for m{1};
        const auto other = static_cast<std::uint16_t>(detail >> 7);
        const tutti::status cause{code, other, peer, detail};
        m.area.fail(cause);
        CHECK(m.area.failure() == cause);
        m.area.fail({tutti::errc::system, 0, 1, 5});
        CHECK(m.area.failure() == cause);
        // As if other ranks had left their details and come too late with their causes.
        memory_for crossed{1};
        auto* words = reinterpret_cast<std::uint64_t*>(crossed.words.data());
        std::fill(words + 1, words + 512, 77);
        crossed.area.fail(cause);
        CHECK(crossed.area.failure() == tutti::status{code, other, peer, 0});
      }
}

TEST_CASE("a cause without a peer stays without one") {
  memory_for m{1};
  m.area.fail({tutti::errc::aborted});
  CHECK(m.area.failure().code == tutti::errc::aborted);
  CHECK(m.area.failure().peer == -1);
}

TEST_CASE("the rank furthest behind is the one with the fewest operations") {
  memory_for m{4};
  CHECK(m.area.furthest_behind(0) == -1);
  for (int r = 0; r < 4; ++r) m.area.block(r).issued = 10;
  CHECK(m.area.furthest_behind(10) == -1);
  m.area.block(3).issued = 9;
  m.area.block(1).issued = 7;
  CHECK(m.area.furthest_behind(10) == 1);
  CHECK(m.area.furthest_behind(7) == -1);
}
