#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <string_view>

#include <tutti/core/kernels/copy.hpp>

#include "levels.hpp"

namespace {

using kernels::memory;

constexpr std::size_t counts[] = {0, 1, 7, 63, 64, 65, 127, 128, 129, 191, 192, 200, 1000, 4096, 100003};

TEST_CASE("copy_streaming: copies every count between all alignments, and nothing beside") {
  std::mt19937_64 g{1};
  for (const auto level : kernels::levels())
    for (const std::size_t bytes : counts)
      for (std::size_t to = 0; to < 64; to += 7) {
        const memory from(bytes, (to * 5 + bytes) % 64), copy(bytes, to);
        for (std::size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<std::byte>(g());
        tutti::detail::copy_streaming(copy.data(), from.data(), bytes, level);
        CAPTURE(std::string_view{name(level)});
        CAPTURE(bytes);
        CAPTURE(to);
        CHECK((bytes == 0 || std::memcmp(copy.data(), from.data(), bytes) == 0));
        CHECK(copy.intact());
      }
}

TEST_CASE("copy_streaming: chooses an instruction set by itself") {
  const memory from(1000, 3), to(1000, 9);
  for (std::size_t i = 0; i < 1000; ++i) from.data()[i] = static_cast<std::byte>(i);
  tutti::copy_streaming(to.data(), from.data(), 1000);
  CHECK(std::memcmp(to.data(), from.data(), 1000) == 0);
  tutti::copy_streaming(nullptr, nullptr, 0);
}

TEST_CASE("copy_bytes: moves every count between all alignments, by every instruction set, and writes nothing beside") {
  std::mt19937_64 g{2};
  for (const auto level : kernels::levels())
    for (const std::size_t bytes : counts)
      for (std::size_t to = 0; to < 64; to += 7) {
        const memory from(bytes, (to * 3 + bytes) % 64), copy(bytes, to), same(bytes, to);
        for (std::size_t i = 0; i < bytes; ++i) from.data()[i] = static_cast<std::byte>(g());
        tutti::detail::copy_forward(copy.data(), from.data(), bytes, level);
        tutti::copy_bytes(same.data(), from.data(), bytes);
        CAPTURE(std::string_view{name(level)});
        CAPTURE(bytes);
        CAPTURE(to);
        CHECK((bytes == 0 || std::memcmp(copy.data(), from.data(), bytes) == 0));
        CHECK((bytes == 0 || std::memcmp(same.data(), from.data(), bytes) == 0));
        CHECK(copy.intact());
        CHECK(same.intact());
      }
  tutti::copy_bytes(nullptr, nullptr, 0);
}

TEST_CASE("copy_bytes: a buffer may be moved over itself, either way") {
  constexpr std::size_t bytes = 20000;
  for (const std::size_t by :
       {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{64}, std::size_t{500}, std::size_t{5000}, bytes})
    for (const bool ahead : {false, true})
      for (const auto level : kernels::levels()) {
        const memory whole(bytes + by, 5), wanted(bytes + by, 5);
        for (std::size_t i = 0; i < bytes + by; ++i)
          whole.data()[i] = wanted.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
        std::byte *const to = whole.data() + (ahead ? by : 0), *const from = whole.data() + (ahead ? 0 : by);
        std::memmove(wanted.data() + (ahead ? by : 0), wanted.data() + (ahead ? 0 : by), bytes);
        if (ahead && by < bytes)
          tutti::copy_bytes(to, from, bytes);
        else
          tutti::detail::copy_forward(to, from, bytes, level);
        CAPTURE(by);
        CAPTURE(ahead);
        CHECK(std::memcmp(whole.data(), wanted.data(), bytes + by) == 0);
        CHECK(whole.intact());
      }
}

}  // namespace
