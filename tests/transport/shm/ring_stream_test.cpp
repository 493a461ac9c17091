#include <doctest/doctest.h>

#include <tutti/transport/messaging/channel.hpp>
#include <tutti/transport/shm/ring_stream.hpp>
#include <vector>

#include "transport/drive.hpp"

namespace {

using tutti::shm_control_block;

struct alignas(4096) page {
  std::byte bytes[4096]{};
};

struct two_pipes {
  std::vector<page> memory{(shm_control_block::bytes(2) + sizeof(page) - 1) / sizeof(page)};
  shm_control_block area{reinterpret_cast<std::byte*>(memory.data()), 2};
  tutti::detail::doorbell bell_a{area, 0}, bell_b{area, 1};
  tutti::ring_stream a{area, 0, 1, bell_a}, b{area, 1, 0, bell_b};
};

static_assert(tutti::byte_stream<tutti::ring_stream>);

}  // namespace

TEST_CASE("a ring pipe carries bytes both ways") {
  two_pipes p;
  const auto ping = drive::bytes_of("ping"), pong = drive::bytes_of("pong!");
  std::vector<std::byte> got(4);
  CHECK(p.a.write(ping, {}) == 4);
  CHECK(p.b.write(pong, {}) == 5);
  CHECK(p.b.read(got) == 4);
  CHECK(got == ping);
  got.resize(8);
  CHECK(p.a.read(got) == 5);
  got.resize(5);
  CHECK(got == pong);
  CHECK(p.a.read(got) == 0);
  CHECK(p.a.failure().ok());
}

TEST_CASE("bytes for a sleeping peer wake it") {
  two_pipes p;
  p.bell_b.prepare(shm_control_block::sleep::on_futex);
  CHECK(p.a.write(drive::bytes_of("x"), {}) == 1);
  CHECK(p.area.block(1).bell == 1);
}

TEST_CASE("room in a full ring wakes the writer that sleeps until there is some") {
  two_pipes p;
  const std::vector<std::byte> full(shm_control_block::ring_bytes(2) + 1);
  CHECK(p.a.write(full, {}) == full.size() - 1);
  p.bell_a.prepare(shm_control_block::sleep::on_futex);
  CHECK(p.a.write(full, {}) == 0);
  std::vector<std::byte> some(100);
  CHECK(p.b.read(some) == 100);
  CHECK(p.area.block(0).bell == 1);
}

TEST_CASE("a pipe that can do nothing wakes nobody") {
  two_pipes p;
  p.bell_b.prepare(shm_control_block::sleep::on_futex);
  std::vector<std::byte> none(1);
  CHECK(p.a.read(none) == 0);
  CHECK(p.a.write({}, {}) == 0);
  CHECK(p.area.block(1).bell == 0);
}
