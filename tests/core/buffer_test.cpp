#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/core/buffer.hpp>

namespace {

using tutti::buffer;
using tutti::const_buffer;
using tutti::dtype;
using tutti::erase_type;
using tutti::overlap;

struct pixel {
  std::uint8_t r, g, b;
};

static_assert(std::is_trivially_copyable_v<buffer> && std::is_aggregate_v<buffer>);
static_assert(!std::is_convertible_v<const_buffer, buffer>, "read-only memory must not become writable");
static_assert(std::is_same_v<decltype(erase_type(std::span<float>{})), buffer>);
static_assert(std::is_same_v<decltype(erase_type(std::span<const float>{})), const_buffer>);

template <class T>
concept erasable = requires(std::span<T> s) { erase_type(s); };
static_assert(erasable<float> && erasable<const float> && erasable<pixel> && erasable<std::byte>);
static_assert(!erasable<std::string> && !erasable<const std::string> && !erasable<float*> && !erasable<float* const>);

TEST_CASE("buffer: by default empty host memory") {
  constexpr buffer b;
  CHECK(b.data == nullptr);
  CHECK(b.count == 0);
  CHECK(b.bytes() == 0);
  CHECK(b.where == tutti::space::host);
}

TEST_CASE_TEMPLATE("erase_type: keeps address, count, size and dtype", T, bool, std::int8_t, std::uint16_t, int,
                   std::uint64_t, float, double, long double, tutti::float16, tutti::bfloat16, std::byte, pixel) {
  std::array<T, 5> values{};
  const buffer b = erase_type(std::span<T>{values});
  CHECK(b.data == values.data());
  CHECK(b.count == 5);
  CHECK(b.element_bytes == sizeof(T));
  CHECK(b.bytes() == sizeof(values));
  CHECK(b.type == tutti::dtype_of<T>());
  CHECK(b.where == tutti::space::host);

  const const_buffer c = erase_type(std::span<const T>{values});
  CHECK(c.data == values.data());
  CHECK(c.count == 5);
  CHECK(c.bytes() == sizeof(values));
  CHECK(c.type == b.type);
}

TEST_CASE("erase_type: a struct is opaque, its size travels beside it") {
  std::vector<pixel> image(10);
  const buffer b = erase_type(std::span{image});
  CHECK(b.type == dtype::opaque);
  CHECK(b.element_bytes == 3);
  CHECK(b.bytes() == 30);
}

TEST_CASE("erase_type: an empty span is an empty buffer") {
  const buffer b = erase_type(std::span<double>{});
  CHECK(b.count == 0);
  CHECK(b.bytes() == 0);
  CHECK(b.type == dtype::f64);
}

TEST_CASE("bytes: do not wrap at four gigabytes") {
  const buffer b{.count = std::size_t{1} << 33, .element_bytes = 4, .type = dtype::f32};
  CHECK(b.bytes() == std::size_t{1} << 35);
}

TEST_CASE("overlap: agrees with counting shared bytes") {
  constexpr std::size_t n = 6;
  const std::array<std::byte, n> memory{};
  int wrong = 0;
  for (std::size_t a = 0; a <= n; ++a)
    for (std::size_t a_end = a; a_end <= n; ++a_end)
      for (std::size_t b = 0; b <= n; ++b)
        for (std::size_t b_end = b; b_end <= n; ++b_end) {
          bool shared = false;
          for (std::size_t i = 0; i < n; ++i) shared |= a <= i && i < a_end && b <= i && i < b_end;
          wrong += overlap(memory.data() + a, a_end - a, memory.data() + b, b_end - b) != shared;
        }
  CHECK(wrong == 0);
}

TEST_CASE("overlap: null and empty share nothing") {
  const int x = 0;
  CHECK_FALSE(overlap(nullptr, 0, nullptr, 0));
  CHECK_FALSE(overlap(nullptr, 0, &x, sizeof x));
  CHECK_FALSE(overlap(&x, 0, &x, sizeof x));
  CHECK(overlap(&x, sizeof x, &x, 1));
}

}  // namespace
