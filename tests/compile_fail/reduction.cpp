#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tutti/core/buffer.hpp>
#include <tutti/core/reduction.hpp>

// What no reduction can be made of, and what the compiler says about it: clang names the condition that failed, g++
// only the concept, until -fconcepts-diagnostics-depth=2.
//
// SECTION_band_on_float: (because|satisfaction of) .reduction_for<.*band_op.*float
// SECTION_bor_on_float16: (because|satisfaction of) .reduction_for<.*bor_op.*float16
// SECTION_bxor_on_long_double: (because|satisfaction of) .reduction_for<.*bxor_op.*long double
// SECTION_mean_on_bool: (because|satisfaction of) .reduction_for<.*mean_op.*[bB]ool
// SECTION_sum_on_struct: (because|satisfaction of) .reduction_for<.*sum_op.*point
// SECTION_min_on_enum: (because|satisfaction of) .reduction_for<.*min_op.*level
// SECTION_string_capture: trivially_copyable|operand of the disjunction
// SECTION_too_many_captures: context_bytes|operand of the disjunction
// SECTION_overaligned_capture: alignof|operand of the disjunction
// SECTION_returns_unrelated: convertible_to|operand of the disjunction
// SECTION_returns_nothing: convertible_to|operand of the disjunction
// SECTION_returns_float_for_float16: convertible_to|operand of the disjunction
// SECTION_changes_its_captures: \(a, b\)|operand of the disjunction
// SECTION_one_operand: \(a, b\)|operand of the disjunction
// SECTION_changes_its_operands: \(a, b\)|operand of the disjunction
// SECTION_const_element: satisfy 'element'|element<T>. \[with T = const float\]
// SECTION_pointer_element: is_pointer_v
// SECTION_string_element: trivially_copyable|trivially copyable
// SECTION_unassignable_element: assignable

namespace {

struct point {
  double x, y;
};
[[maybe_unused]] constexpr auto add = [](point a, point b) { return point{a.x + b.x, a.y + b.y}; };
enum class level : std::uint8_t { low, high };
struct constant {
  const int value;
};

[[maybe_unused]] tutti::reduction allowed() {
  const double scale = 0.5;
  (void)tutti::erase_type<bool>(tutti::band);
  (void)tutti::erase_type<int>(tutti::mean);
  (void)tutti::erase_type<tutti::bfloat16>(tutti::max);
  (void)tutti::erase_type<double>([scale](double a, double b) { return scale * (a + b); });
  return tutti::erase_type<point>(add);
}

#if defined(SECTION_band_on_float)
const auto r = tutti::erase_type<float>(tutti::band);
#endif

#if defined(SECTION_bor_on_float16)
const auto r = tutti::erase_type<tutti::float16>(tutti::bor);
#endif

#if defined(SECTION_bxor_on_long_double)
const auto r = tutti::erase_type<long double>(tutti::bxor);
#endif

#if defined(SECTION_mean_on_bool)
const auto r = tutti::erase_type<bool>(tutti::mean);
#endif

#if defined(SECTION_sum_on_struct)
const auto r = tutti::erase_type<point>(tutti::sum);
#endif

#if defined(SECTION_min_on_enum)
const auto r = tutti::erase_type<level>(tutti::min);
#endif

#if defined(SECTION_string_capture)
const auto r = tutti::erase_type<int>([s = std::string{"x"}](int a, int b) { return a + b + int(s.size()); });
#endif

#if defined(SECTION_too_many_captures)
struct many {
  double captures[4];
  double operator()(double a, double b) const { return captures[0] * a + captures[3] * b; }
};
const auto r = tutti::erase_type<double>(many{});
#endif

#if defined(SECTION_overaligned_capture)
struct alignas(16) aligned {
  double capture;
  double operator()(double a, double b) const { return capture * (a + b); }
};
const auto r = tutti::erase_type<double>(aligned{});
#endif

#if defined(SECTION_returns_unrelated)
const auto r = tutti::erase_type<int>([](int a, int b) { return point{double(a), double(b)}; });
#endif

#if defined(SECTION_returns_nothing)
const auto r = tutti::erase_type<int>([](int, int) {});
#endif

#if defined(SECTION_returns_float_for_float16)
const auto r = tutti::erase_type<tutti::float16>([](float a, float b) { return a + b; });
#endif

#if defined(SECTION_changes_its_captures)
const auto r = tutti::erase_type<int>([calls = 0](int a, int b) mutable { return a + b + ++calls; });
#endif

#if defined(SECTION_one_operand)
const auto r = tutti::erase_type<int>([](int a) { return a; });
#endif

#if defined(SECTION_changes_its_operands)
const auto r = tutti::erase_type<int>([](int& a, int b) { return a += b; });
#endif

#if defined(SECTION_const_element)
const auto r = tutti::erase_type<const float>(tutti::sum);
#endif

#if defined(SECTION_pointer_element)
const auto r = tutti::erase_type<int*>([](int* a, int*) { return a; });
#endif

#if defined(SECTION_string_element)
const auto r = tutti::erase_type<std::string>([](std::string a, const std::string& b) { return a + b; });
#endif

#if defined(SECTION_unassignable_element)
const auto r = tutti::erase_type<constant>([](constant a, constant) { return a; });
#endif

}  // namespace
