#include <doctest/doctest.h>

#include <array>
#include <cfenv>
#include <cstddef>
#include <limits>
#include <vector>

#include <tutti/core/reduction.hpp>
#include <tutti/core/reduction/default_float_mode.hpp>
#include <tutti/core/reduction/raw_reduction.hpp>

namespace {

using tutti::detail::default_float_mode;
using tutti::detail::float_control;
using tutti::detail::float_mode;

/// What -ffast-math sets, and a rounding that nobody expects, while it lives.
class odd_mode {
 public:
  odd_mode() { tutti::detail::set_float_control(before_ | (float_mode & ~towards_zero) | upwards); }
  ~odd_mode() { tutti::detail::set_float_control(before_); }

 private:
#if defined(__x86_64__)
  static constexpr unsigned towards_zero = 0x6000, upwards = 0x4000;
#else
  static constexpr unsigned towards_zero = 0xc00000, upwards = 0x400000;
#endif
  unsigned before_ = float_control();
};

/// `op` of two, element by element, as the algorithms do: pair by pair, and all at once.
template <class T, class Op>
std::vector<T> folded(const std::vector<T>& a, const std::vector<T>& b, Op op) {
  const auto r = tutti::erase_type<T>(op);
  std::vector<T> pairs = a, all(a.size());
  r.fold(b.data(), pairs.data(), a.size(), r.context.data());
  if (r.finish) r.finish(pairs.data(), pairs.size(), 2, r.context.data());
  const std::array<const void*, 2> inputs{a.data(), b.data()};
  r.fold_all(inputs.data(), 2, all.data(), a.size(), r.context.data());
  pairs.insert(pairs.end(), all.begin(), all.end());
  return pairs;
}

template <class T, class Op>
void check_equal_bits(Op op) {
  for (const std::size_t count : {1U, 4U, 5U, 1000U}) {
    std::vector<T> a(count), b(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto x = static_cast<T>(i + 1);
      // Sums of subnormal numbers, and sums that have to be rounded.
      a[i] = i % 2 == 0 ? x * std::numeric_limits<T>::denorm_min() : x;
      b[i] = i % 2 == 0 ? a[i] : x * std::numeric_limits<T>::epsilon() / 3;
    }
    const std::vector<T> right = folded(a, b, op);
    const odd_mode set;
    const unsigned before = float_control();
    const std::vector<T> here = folded(a, b, op);
    CHECK((float_control() & float_mode) == (before & float_mode));
    tutti::detail::set_float_control(before & ~float_mode);  // to compare
    CHECK(here == right);
    CHECK(right[0] > 0);
  }
}

}  // namespace

TEST_CASE("a fold has the bits of the default floating-point mode, in whatever mode its thread is") {
  if (float_mode == 0) return;
  check_equal_bits<float>(tutti::sum);
  check_equal_bits<double>(tutti::sum);
  check_equal_bits<float>(tutti::mean);
  check_equal_bits<double>(tutti::max);
  check_equal_bits<float>([](float x, float y) { return x + y; });
}

TEST_CASE("a reduction that is a function of bytes is called in the default floating-point mode") {
  if (float_mode == 0) return;
  const auto r = tutti::erase_type(tutti::raw_reduction{
      [](const void*, void* inout, std::size_t, std::size_t) { *static_cast<unsigned*>(inout) = float_control(); },
      sizeof(unsigned)});
  const odd_mode set;
  unsigned seen = float_mode, other = 0;
  r.fold(&other, &seen, 1, r.context.data());
  CHECK((seen & float_mode) == 0);
  CHECK((float_control() & float_mode) != 0);
}

TEST_CASE("default_float_mode: what arithmetic raises stays raised, and the thread's mode comes back") {
  if (float_mode == 0) return;
  const odd_mode set;
  const unsigned before = float_control();
  std::feclearexcept(FE_ALL_EXCEPT);
  {
    const default_float_mode here;
    CHECK((float_control() & float_mode) == 0);
    volatile double zero = 0;
    zero = 1 / zero;
  }
  CHECK(std::fetestexcept(FE_DIVBYZERO) != 0);
  CHECK((float_control() & float_mode) == (before & float_mode));
  std::feclearexcept(FE_ALL_EXCEPT);
}
