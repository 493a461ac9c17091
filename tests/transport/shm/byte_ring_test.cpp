#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <tutti/transport/shm/byte_ring.hpp>
#include <vector>

#include "transport/drive.hpp"

namespace {

using tutti::detail::byte_ring;
using tutti::detail::ring_reader;
using tutti::detail::ring_writer;

struct ring_of_16 {
  alignas(byte_ring) std::array<std::byte, sizeof(byte_ring) + 16> memory{};
  byte_ring& ring = *reinterpret_cast<byte_ring*>(memory.data());
  std::byte* data = memory.data() + sizeof(byte_ring);
  ring_writer writer{ring, data, 16};
  ring_reader reader{ring, data, 16};

  std::size_t write(const std::string& a, const std::string& b = {}) {
    return writer.write(drive::bytes_of(a), drive::bytes_of(b));
  }
  std::string read(std::size_t most) {
    std::vector<std::byte> into(most);
    into.resize(reader.read(into));
    std::string text;
    for (const std::byte x : into) text += std::to_integer<char>(x);
    return text;
  }
};

}  // namespace

TEST_CASE("zeroed memory is an empty ring") {
  ring_of_16 r;
  CHECK(r.read(16).empty());
  CHECK(r.write("") == 0);
}

TEST_CASE("a ring gathers two spans and gives the bytes back in order, across its end") {
  ring_of_16 r;
  for (int round = 0; round < 20; ++round) {
    CHECK(r.write("head", "payload") == 11);
    CHECK(r.read(5) == "headp");
    CHECK(r.read(16) == "ayload");
  }
}

TEST_CASE("a full ring takes what fits and goes on when there is room") {
  ring_of_16 r;
  CHECK(r.write("0123456789", "abcdefgh") == 16);
  CHECK(r.write("x") == 0);
  CHECK(r.read(3) == "012");
  CHECK(r.write("", "gh..") == 3);
  std::string rest = r.read(16);
  rest += r.read(16);
  CHECK(rest == "3456789abcdefgh.");  // a reader looks again only when it has seen all
  CHECK(r.read(16).empty());
}

TEST_CASE("a first span that does not fit keeps the second back") {
  ring_of_16 r;
  CHECK(r.write("0123456789abcdefXY", "second") == 16);
  CHECK(r.read(16) == "0123456789abcdef");
}

TEST_CASE("a reader that runs wild cannot make the writer write") {
  for (const std::uint64_t head : {std::uint64_t{1000}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    ring_of_16 r;
    CHECK(r.write("0123456789abcdef") == 16);
    const auto before = r.memory;
    r.ring.head = head;
    CHECK(r.write("overwritten") == 0);
    CHECK(std::equal(r.data, r.data + 16, before.data() + sizeof(byte_ring)));
  }
}

TEST_CASE("a writer that runs wild cannot make the reader read") {
  for (const std::uint64_t tail : {std::uint64_t{17}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    ring_of_16 r;
    r.ring.tail = tail;
    CHECK(r.read(16).empty());
  }
}

TEST_CASE("two threads pass a stream through a ring") {
  ring_of_16 r;
  const auto sent = drive::pattern(100000, 7);
  std::jthread writer{[&] {
    std::minstd_rand random{1};
    for (std::size_t done = 0; done < sent.size();) {
      const std::size_t n = std::min<std::size_t>(random() % 24, sent.size() - done);
      const std::size_t first = n / 3;
      const std::size_t moved =
          r.writer.write(std::span{sent}.subspan(done, first), std::span{sent}.subspan(done + first, n - first));
      done += moved;
      if (moved == 0) std::this_thread::yield();
    }
  }};
  std::vector<std::byte> got(sent.size());
  std::minstd_rand random{2};
  for (std::size_t done = 0; done < got.size();) {
    const std::size_t n = std::min<std::size_t>(1 + random() % 24, got.size() - done);
    const std::size_t moved = r.reader.read(std::span{got}.subspan(done, n));
    done += moved;
    if (moved == 0) std::this_thread::yield();
  }
  CHECK(got == sent);
}
