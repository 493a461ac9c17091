#include <doctest/doctest.h>

#include <random>
#include <tutti/transport/shm/handshake.hpp>

using tutti::detail::shm_handshake;

TEST_CASE("a hello survives encoding") {
  const shm_handshake h{3, 4, 2, 5, 0x123456789abc, 0xfedcba987654, {tutti::errc::peer_lost, 0, 7, 0}};
  CHECK(shm_handshake::decode(h.encode()) == h);
  CHECK(shm_handshake::decode(shm_handshake{}.encode())->version == tutti::shm_layout::version);
}

TEST_CASE("a hello begins with its magic and is little-endian") {
  const auto raw = shm_handshake{1, 2, 3, 4, 5, 6, {tutti::errc::peer_lost, 0, 7, 0}}.encode();
  CHECK(std::to_integer<char>(raw[0]) == 'u');
  CHECK(std::to_integer<char>(raw[7]) == 'm');
  for (std::size_t i = 0; i < 4; ++i) CHECK(raw[8 + 4 * i] == static_cast<std::byte>(i + 1));
  CHECK(raw[24] == std::byte{5});
  CHECK(raw[32] == std::byte{6});
  CHECK(raw[40] == static_cast<std::byte>(tutti::errc::peer_lost));
  CHECK(raw[44] == std::byte{7});
  for (std::size_t i = 45; i < raw.size(); ++i) CHECK(raw[i] == std::byte{});
}

TEST_CASE("other bytes are no hello") {
  std::mt19937 random{3};
  for (int i = 0; i < 1000; ++i) {
    shm_handshake::encoded raw{};
    for (std::byte& b : raw) b = static_cast<std::byte>(random());
    CHECK_FALSE(shm_handshake::decode(raw));
  }
  CHECK_FALSE(shm_handshake::decode(shm_handshake::encoded{}));
}

TEST_CASE("a hello of another version is told apart from garbage") {
  shm_handshake h;
  h.version = 999;
  CHECK(shm_handshake::decode(h.encode())->version == 999);
}

TEST_CASE("a refusal without a known cause is a refusal all the same") {
  auto raw = shm_handshake{}.encode();
  CHECK(shm_handshake::decode(raw)->refusal.ok());
  raw[40] = raw[41] = std::byte{0xff};
  CHECK_FALSE(shm_handshake::decode(raw)->refusal.ok());
}
