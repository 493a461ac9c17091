#include <doctest/doctest.h>

#include <cstddef>
#include <type_traits>

#include <tutti/core/stream_ref.hpp>

namespace {

using tutti::stream_ref;

static_assert(std::is_trivially_copyable_v<stream_ref> && sizeof(stream_ref) == sizeof(void*));
static_assert(std::is_convertible_v<CUstream_st*, stream_ref> && std::is_convertible_v<std::nullptr_t, stream_ref>);
static_assert(!std::is_constructible_v<stream_ref, int> && !std::is_constructible_v<stream_ref, bool>);
static_assert(!std::is_constructible_v<stream_ref, void*> && !std::is_constructible_v<stream_ref, const CUstream_st*>);
static_assert(std::is_constructible_v<bool, stream_ref> && !std::is_convertible_v<stream_ref, bool>);

constexpr stream_ref nothing;
static_assert(!nothing && nothing.native() == nullptr);
constexpr stream_ref null = nullptr;
static_assert(!null && null.native() == nullptr);

CUstream_st* native_of(stream_ref s) { return s.native(); }

TEST_CASE("stream_ref: holds the native stream and does not touch it") {
  alignas(std::max_align_t) std::byte storage[64]{};
  auto* const native = reinterpret_cast<CUstream_st*>(storage);
  const stream_ref s = native;
  CHECK(s.native() == native);
  CHECK(static_cast<bool>(s));
  const stream_ref copy = s;
  CHECK(copy.native() == native);
  CHECK(native_of(native) == native);
  for (const std::byte b : storage) CHECK(b == std::byte{0});
}

TEST_CASE("stream_ref: empty means host memory") {
  CHECK(native_of({}) == nullptr);
  CHECK(native_of(nullptr) == nullptr);
  CHECK_FALSE(static_cast<bool>(stream_ref{}));
}

}  // namespace
