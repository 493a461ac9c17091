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

}  // namespace
