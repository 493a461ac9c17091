#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tutti/core/kernels/fold.hpp>

#include "levels.hpp"

namespace {

using namespace tutti::detail;
using kernels::memory;
using tutti::bfloat16;
using tutti::float16;
using tutti::float8_e4m3;
using tutti::float8_e5m2;
using tutti::stores;

template <class T>
constexpr bool is_half = tutti::narrow_float<T>;
template <class T>
constexpr bool is_float = std::is_floating_point_v<T> || is_half<T>;

template <class T>
bool is_nan(T value) {
  if constexpr (is_float<T>)
    return std::isnan(static_cast<std::conditional_t<is_half<T>, float, T>>(value));
  else
    return false;
}

/// All bits at random; of floats, every fourth one of those that rules are made for.
template <class T>
T draw(std::mt19937_64& g) {
  const std::uint64_t bits = g();
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  if constexpr (is_float<T>) {
    using limits = std::numeric_limits<float>;
    const float special[] = {0.0F,
                             -0.0F,
                             limits::infinity(),
                             -limits::infinity(),
                             limits::quiet_NaN(),
                             limits::denorm_min(),
                             0x1p-25F,
                             65519.9F,
                             65504.0F,
                             0x1p-14F,
                             -0x1.ffep-15F,
                             3.4e38F,
                             0x1.fep-127F,
                             1.0F,
                             -1.0F,
                             0x1.018p0F};
    const auto pick = g() % 64;
    if (pick < std::size(special)) return static_cast<T>(special[pick]);
  }
  return value;
}

/// Which of two different NaNs an addition or a product gives is the compiler's choice; all else is bit for bit.
template <class T, class Op>
std::size_t differences(const std::vector<memory>& inputs, const std::byte* got, const std::byte* wanted,
                        std::size_t count) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = i * sizeof(T);
    if (std::memcmp(got + bytes, wanted + bytes, sizeof(T)) == 0) continue;
    T a, b;
    std::memcpy(static_cast<void*>(&a), got + bytes, sizeof(T));
    std::memcpy(static_cast<void*>(&b), wanted + bytes, sizeof(T));
    int nans = inputs.size() > 2 ? 2 : 0;
    for (const memory& m : inputs) {
      T x;
      std::memcpy(static_cast<void*>(&x), m.data() + bytes, sizeof(T));
      nans += is_nan(x);
    }
    if (is_ordering<Op> || nans < 2 || !is_nan(a) || !is_nan(b)) ++wrong;
  }
  return wrong;
}

template <class T, class Op>
void expect_level(tutti::instruction_set level, std::mt19937_64& g) {
  const auto kernel = fold_kernel_for<T, Op>(level);
  for (std::size_t count = 0; count <= 130; ++count) {
    const auto n = static_cast<std::size_t>(1 + count % 5), m = 1 + count / 5 % 3, shift = count % 67;
    const auto how =
        std::array{stores::ordinary, stores::streaming, stores::own_first, stores::unclaimed}[count / 15 % 4];
    const double divisor = count % 2 == 0 ? static_cast<double>(n) : 2.75;
    std::vector<memory> inputs, outputs;
    std::vector<const void*> in;
    std::vector<void*> out, expected;
    for (std::size_t r = 0; r < n; ++r) {
      inputs.emplace_back(count * sizeof(T), (shift + r) % 64);
      for (std::size_t i = 0; i < count; ++i) {
        const T value = draw<T>(g);
        std::memcpy(inputs.back().data() + i * sizeof(T), &value, sizeof(T));
      }
      in.push_back(inputs.back().data());
    }
    for (std::size_t o = 0; o < m; ++o) outputs.emplace_back(count * sizeof(T), o == 0 ? 0 : (shift * sizeof(T)) % 64);
    for (const memory& o : outputs) out.push_back(o.data());
    memory wanted(count * sizeof(T), 0);
    void* const reference[] = {wanted.data()};
    fold_scalars<T, Op>(in.data(), static_cast<int>(n), reference, 1, 0, count, divisor);

    kernel(in.data(), static_cast<int>(n), out.data(), static_cast<int>(m), count, how, divisor);
    CAPTURE(count);
    for (const memory& o : outputs) {
      CHECK(differences<T, Op>(inputs, o.data(), wanted.data(), count) == 0);
      CHECK(o.intact());
    }
    // In place of all of the inputs.
    const std::vector<memory> before = inputs;
    for (const memory& i : inputs) expected.push_back(i.data());
    kernel(in.data(), static_cast<int>(n), expected.data(), static_cast<int>(n), count, how, divisor);
    for (const memory& i : inputs) {
      CHECK(differences<T, Op>(before, i.data(), wanted.data(), count) == 0);
      CHECK(i.intact());
    }
  }
}

template <class T, class... Op>
void expect_levels(Op...) {
  for (const auto level : kernels::levels()) {
    CAPTURE(std::string_view{name(level)});
    std::mt19937_64 g{20240229};
    (expect_level<T, Op>(level, g), ...);
  }
}

TEST_CASE_TEMPLATE("kernels: every instruction set folds floats as the scalar code does", T, float, double, float16,
                   bfloat16, float8_e4m3, float8_e5m2) {
  expect_levels<T>(sum_op{}, prod_op{}, min_op{}, max_op{}, mean_op{});
}

TEST_CASE_TEMPLATE("kernels: every instruction set folds integers as the scalar code does", T, std::uint8_t,
                   std::uint16_t, std::uint32_t, std::uint64_t) {
  expect_levels<T>(sum_op{}, prod_op{}, min_op{}, max_op{}, band_op{}, bor_op{}, bxor_op{});
}

TEST_CASE_TEMPLATE("kernels: order of signed integers", T, std::int8_t, std::int16_t, std::int32_t, std::int64_t) {
  expect_levels<T>(min_op{}, max_op{});
}

/// Every pattern, as the only operand: decoded and encoded again.
template <class T>
void expect_conversions() {
  using bits = decltype(T::bits);
  std::vector<bits> all(65536), wanted(65536), got(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<bits>(i);
  const void* const in[] = {all.data()};
  void* const reference[] = {wanted.data()};
  void* const out[] = {got.data()};
  fold_scalars<T, sum_op>(in, 1, reference, 1, 0, all.size(), 1);
  for (const auto level : kernels::levels()) {
    CAPTURE(std::string_view{name(level)});
    fold_kernel_for<T, sum_op>(level)(in, 1, out, 1, all.size(), stores::ordinary, 1);
    CHECK(got == wanted);
  }
}

TEST_CASE("kernels: all patterns of narrow floats are converted as the scalar code does") {
  SUBCASE("float16") { expect_conversions<float16>(); }
  SUBCASE("bfloat16") { expect_conversions<bfloat16>(); }
  SUBCASE("float8_e4m3") { expect_conversions<float8_e4m3>(); }
  SUBCASE("float8_e5m2") { expect_conversions<float8_e5m2>(); }
}

// Sums of two cover what encoding meets: ties, subnormals, overflow.
template <class T>
void expect_encodes() {
  std::mt19937_64 g{5};
  constexpr std::size_t count = 1 << 18;
  using bits = decltype(T::bits);
  constexpr std::uint64_t largest = sizeof(T) == 2 ? 0x8fff : 0x9f;
  std::vector<T> a(count), b(count), wanted(count), got(count);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = T::from_bits(static_cast<bits>(g()));
    b[i] = T::from_bits(static_cast<bits>(a[i].bits ^ (g() & largest)));  // of like size
    if (std::isnan(static_cast<float>(a[i]))) b[i] = T{};
  }
  const void* const in[] = {a.data(), b.data()};
  void* const reference[] = {wanted.data()};
  void* const out[] = {got.data()};
  fold_scalars<T, sum_op>(in, 2, reference, 1, 0, count, 1);
  for (const auto level : kernels::levels()) {
    CAPTURE(std::string_view{name(level)});
    fold_kernel_for<T, sum_op>(level)(in, 2, out, 1, count, stores::ordinary, 1);
    CHECK(std::memcmp(got.data(), wanted.data(), count * sizeof(T)) == 0);
  }
}

TEST_CASE("kernels: sums of narrow floats are rounded as the scalar code does") {
  SUBCASE("float16") { expect_encodes<float16>(); }
  SUBCASE("bfloat16") { expect_encodes<bfloat16>(); }
  SUBCASE("float8_e4m3") { expect_encodes<float8_e4m3>(); }
  SUBCASE("float8_e5m2") { expect_encodes<float8_e5m2>(); }
}

TEST_CASE("kernels: the best instruction set is one of those that this machine has") {
  CHECK(std::string_view{name(tutti::best_instruction_set())} == name(kernels::levels().back()));
}

#if defined(__x86_64__)
TEST_CASE("kernels: where a program takes subnormals for zero, bfloat16 has the bits that it has without AVX512-BF16") {
  if (!tutti::detail::cpu_has_avx512_bf16()) {
    MESSAGE("skipped: this processor has no AVX512-BF16");
    return;
  }
  constexpr std::size_t count = 96;
  std::mt19937_64 g{7};
  std::vector<bfloat16> a(count), b(count), with(count), without(count);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = i % 3 == 0 ? bfloat16::from_bits(static_cast<std::uint16_t>(i + 1)) : draw<bfloat16>(g);
    b[i] = i % 2 == 0 ? a[i] : draw<bfloat16>(g);
  }
  const void* const inputs[] = {a.data(), b.data()};
  const auto fold = [&](tutti::instruction_set level, auto op, int n, std::vector<bfloat16>& into) {
    void* const out[] = {into.data()};
    fold_kernel_for<bfloat16, decltype(op)>(level)(inputs, n, out, 1, count, stores::ordinary, 2);
  };
  const auto differ = [&](auto op, int n) {
    fold(tutti::instruction_set::avx512, op, n, without);
    fold(tutti::instruction_set::avx512_bf16, op, n, with);
    int wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += with[i].bits != without[i].bits;
    return wrong;
  };
  constexpr unsigned daz = 0x40, ftz = 0x8000;
  const unsigned before = __builtin_ia32_stmxcsr();
  std::vector<int> wrong;
  for (const unsigned mode : {0U, daz, ftz, daz | ftz}) {
    __builtin_ia32_ldmxcsr(before | mode);
    for (const int n : {1, 2})
      for (const int found : {differ(sum_op{}, n), differ(max_op{}, n), differ(mean_op{}, n)}) wrong.push_back(found);
    __builtin_ia32_ldmxcsr(before);
  }
  CHECK(std::count(wrong.begin(), wrong.end(), 0) == static_cast<std::ptrdiff_t>(wrong.size()));
}
#endif

}  // namespace
