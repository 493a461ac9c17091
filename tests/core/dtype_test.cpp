#include <doctest/doctest.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tutti/core/dtype.hpp>

namespace {

using tutti::bfloat16;
using tutti::dtype;
using tutti::dtype_of;
using tutti::element;
using tutti::float16;
using tutti::float8_e4m3;
using tutti::float8_e5m2;
using tutti::number;

enum class colour : std::uint8_t { red, green };
struct point {
  double x, y;
};
struct pair_of_floats {
  using value_type = float;
  float first, second;
};
struct fixed {
  const int x;
};
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

constexpr dtype every_dtype[] = {dtype::i8,      dtype::u8,      dtype::i16,      dtype::u16,     dtype::i32,
                                 dtype::u32,     dtype::i64,     dtype::u64,      dtype::f16,     dtype::bf16,
                                 dtype::f32,     dtype::f64,     dtype::extended, dtype::boolean, dtype::opaque,
                                 dtype::f8_e4m3, dtype::f8_e5m2, dtype::c64,      dtype::c128};
static_assert(std::size(every_dtype) == tutti::dtype_count);

// Integers are known by width and sign, whatever they are called.
static_assert(dtype_of<signed char>() == dtype::i8 && dtype_of<unsigned char>() == dtype::u8);
static_assert(dtype_of<std::int8_t>() == dtype::i8 && dtype_of<std::uint8_t>() == dtype::u8);
static_assert(dtype_of<std::int16_t>() == dtype::i16 && dtype_of<std::uint16_t>() == dtype::u16);
static_assert(dtype_of<std::int32_t>() == dtype::i32 && dtype_of<std::uint32_t>() == dtype::u32);
static_assert(dtype_of<std::int64_t>() == dtype::i64 && dtype_of<std::uint64_t>() == dtype::u64);
static_assert(dtype_of<long>() == dtype_of<long long>() && dtype_of<unsigned long>() == dtype_of<unsigned long long>());
static_assert(dtype_of<char>() == (std::is_signed_v<char> ? dtype::i8 : dtype::u8));
static_assert(dtype_of<char8_t>() == dtype::u8 && dtype_of<char16_t>() == dtype::u16);
static_assert(dtype_of<char32_t>() == dtype::u32);
static_assert(dtype_of<wchar_t>() == (std::is_signed_v<wchar_t> ? dtype::i32 : dtype::u32));
static_assert(dtype_of<float16>() == dtype::f16 && dtype_of<bfloat16>() == dtype::bf16);
static_assert(dtype_of<float8_e4m3>() == dtype::f8_e4m3 && dtype_of<float8_e5m2>() == dtype::f8_e5m2);
static_assert(dtype_of<std::complex<float>>() == dtype::c64 && dtype_of<std::complex<double>>() == dtype::c128);
static_assert(dtype_of<std::complex<long double>>() == dtype::opaque);
// What others on the wire know them by.
static_assert(static_cast<int>(dtype::opaque) == 14 && static_cast<int>(dtype::c128) == 18);
static_assert(dtype_of<float>() == dtype::f32 && dtype_of<double>() == dtype::f64);
static_assert(dtype_of<long double>() == dtype::extended && dtype_of<bool>() == dtype::boolean);
static_assert(dtype_of<point>() == dtype::opaque && dtype_of<colour>() == dtype::opaque);
static_assert(dtype_of<std::byte>() == dtype::opaque);
// 128-bit integers are integral under -std=gnu++20; they must never pass for 64 bits.
static_assert(dtype_of<int128>() == dtype::opaque && dtype_of<uint128>() == dtype::opaque);

static_assert(element<int> && element<bool> && element<float16> && element<point> && element<colour>);
static_assert(element<std::byte> && element<std::array<float, 3>>);
static_assert(!element<const int> && !element<volatile int> && !element<int&> && !element<void> && !element<int()>);
static_assert(!element<int*> && !element<const char*> && !element<void*> && !element<void (*)()>);
static_assert(!element<std::string> && !element<std::vector<int>>);
static_assert(!element<fixed>, "what arrives must be assignable");

static_assert(number<int> && number<bool> && number<char8_t> && number<long double>);
static_assert(number<float16> && number<bfloat16> && number<float8_e4m3> && number<float8_e5m2>);
static_assert(number<std::complex<float>> && number<std::complex<double>> && !number<std::complex<long double>>);
static_assert(!number<pair_of_floats>, "two floats are no complex number");
static_assert(!number<point> && !number<colour> && !number<std::byte> && !number<int*>);

template <class T>
bool has_its_size() {
  return tutti::size_of(dtype_of<T>()) == sizeof(T);
}

TEST_CASE_TEMPLATE("size_of: is the size of the type", T, bool, char, signed char, unsigned char, short, unsigned short,
                   int, unsigned, long, unsigned long, long long, unsigned long long, wchar_t, char8_t, char16_t,
                   char32_t, float, double, long double, float16, bfloat16, float8_e4m3, float8_e5m2,
                   std::complex<float>, std::complex<double>) {
  CHECK(has_its_size<T>());
}

TEST_CASE("size_of: an opaque element's size travels beside it") { CHECK(tutti::size_of(dtype::opaque) == 0); }

TEST_CASE("name: every dtype has its own") {
  std::set<std::string_view> names;
  for (const dtype t : every_dtype) {
    CHECK_FALSE(name(t).empty());
    CHECK(names.insert(name(t)).second);
  }
  CHECK(name(dtype::i8) == "int8");
  CHECK(name(dtype::u64) == "uint64");
  CHECK(name(dtype::f16) == "float16");
  CHECK(name(dtype::bf16) == "bfloat16");
  CHECK(name(dtype::f32) == "float32");
  CHECK(name(dtype::f64) == "float64");
  CHECK(name(dtype::extended) == "long double");
  CHECK(name(dtype::boolean) == "bool");
  CHECK(name(dtype::opaque) == "struct");
  CHECK(name(dtype::f8_e4m3) == "float8_e4m3");
  CHECK(name(dtype::f8_e5m2) == "float8_e5m2");
  CHECK(name(dtype::c64) == "complex64");
  CHECK(name(dtype::c128) == "complex128");
}

TEST_CASE("dtype: a value from elsewhere has a name and no size") {
  for (const int value : {static_cast<int>(tutti::dtype_count), 128, 255}) {
    CHECK(name(static_cast<dtype>(value)) == "unknown");
    CHECK(tutti::size_of(static_cast<dtype>(value)) == 0);
  }
}

}  // namespace
