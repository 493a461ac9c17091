#pragma once
#include <cstdint>
#include <type_traits>

#include <tutti/tutti.hpp>

namespace bench {

/// Calls f with a null pointer to the type; returns false if it is one that tutti-bench does not reduce.
template <class F>
bool with_type_of(tutti::dtype t, F f) {
  const auto of = [&]<class T>(const T* none) { return f(none); };
  switch (t) {
    case tutti::dtype::i8:
      return of(static_cast<const std::int8_t*>(nullptr));
    case tutti::dtype::u8:
      return of(static_cast<const std::uint8_t*>(nullptr));
    case tutti::dtype::i16:
      return of(static_cast<const std::int16_t*>(nullptr));
    case tutti::dtype::u16:
      return of(static_cast<const std::uint16_t*>(nullptr));
    case tutti::dtype::i32:
      return of(static_cast<const std::int32_t*>(nullptr));
    case tutti::dtype::u32:
      return of(static_cast<const std::uint32_t*>(nullptr));
    case tutti::dtype::i64:
      return of(static_cast<const std::int64_t*>(nullptr));
    case tutti::dtype::u64:
      return of(static_cast<const std::uint64_t*>(nullptr));
    case tutti::dtype::f16:
      return of(static_cast<const tutti::float16*>(nullptr));
    case tutti::dtype::bf16:
      return of(static_cast<const tutti::bfloat16*>(nullptr));
    case tutti::dtype::f32:
      return of(static_cast<const float*>(nullptr));
    case tutti::dtype::f64:
      return of(static_cast<const double*>(nullptr));
    case tutti::dtype::f8_e4m3:
      return of(static_cast<const tutti::float8_e4m3*>(nullptr));
    case tutti::dtype::f8_e5m2:
      return of(static_cast<const tutti::float8_e5m2*>(nullptr));
    default:
      return false;
  }
}

/// Sets `r`; returns false if the kind cannot be made again: a user's function, or minloc and maxloc.
template <class T>
bool set_reduction(tutti::reduction& r, tutti::reduction_kind kind, int ranks) {
  using enum tutti::reduction_kind;
  const auto to = [&](const auto& op) {
    tutti::erase_type<T>(op, r);
    return true;
  };
  if (kind == sum) return to(tutti::sum);
  if (kind == prod) return to(tutti::prod);
  if (kind == min) return to(tutti::min);
  if (kind == max) return to(tutti::max);
  if (kind == mean) return to(tutti::mean);
  if constexpr (std::is_integral_v<T>) {
    if (kind == band) return to(tutti::band);
    if (kind == bor) return to(tutti::bor);
    if (kind == bxor) return to(tutti::bxor);
    if (kind == premul_sum) return to(tutti::premul_sum(T{1}));
  } else {  // factors and divisors are not recorded, and make no difference to the time
    if (kind == premul_sum) return to(tutti::premul_sum(1.0F));
    if (kind == mean_over) return to(tutti::mean_over(ranks));
  }
  return false;
}
inline bool set_reduction(tutti::reduction& r, tutti::dtype type, tutti::reduction_kind kind, int ranks) {
  return with_type_of(type, [&]<class T>(const T*) { return set_reduction<T>(r, kind, ranks); });
}
inline bool can_reduce(tutti::dtype type, tutti::reduction_kind kind) {
  tutti::reduction r;
  return set_reduction(r, type, kind, 1);
}

}  // namespace bench
