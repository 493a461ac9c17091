#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction_ops.hpp>

namespace tutti {

/// Whether a kernel can divide what NCCL has added up.
enum class nccl_division : std::uint8_t { none, kernel };

/// What elements and a reduction are to NCCL.
struct nccl_operand {
  nccl_dtype type = nccl_dtype::u8;
  std::size_t per_element = 1;  ///< of NCCL's elements
  nccl_reduction with = nccl_reduction::op_sum;
  bool scaled = false;        ///< a sum of products with a factor, which is made for the call
  int divisor = 1;            ///< of the result, once NCCL has it: a mean that NCCL cannot make right
  const char* why = nullptr;  ///< not null: NCCL cannot, and this is why and what to do
};

namespace detail {

/// 1/ranks is a number of this type: a power of two that is not too small.
constexpr bool exact_reciprocal(dtype t, int ranks) noexcept {
  if ((ranks & (ranks - 1)) != 0) return false;
  const int most = t == dtype::f16 ? 1 << 24 : t == dtype::f8_e4m3 ? 1 << 9 : t == dtype::f8_e5m2 ? 1 << 16 : 1 << 30;
  return ranks <= most;
}

/// The same values in NCCL; false for types that it cannot compute with.
constexpr bool nccl_type_of(dtype t, nccl_operand& to) noexcept {
  constexpr struct {
    dtype ours;
    nccl_dtype theirs;
    std::size_t per_element;
  } table[] = {{dtype::i8, nccl_dtype::i8, 1},           {dtype::u8, nccl_dtype::u8, 1},
               {dtype::i32, nccl_dtype::i32, 1},         {dtype::u32, nccl_dtype::u32, 1},
               {dtype::i64, nccl_dtype::i64, 1},         {dtype::u64, nccl_dtype::u64, 1},
               {dtype::f16, nccl_dtype::f16, 1},         {dtype::bf16, nccl_dtype::bf16, 1},
               {dtype::f32, nccl_dtype::f32, 1},         {dtype::f64, nccl_dtype::f64, 1},
               {dtype::f8_e4m3, nccl_dtype::f8_e4m3, 1}, {dtype::f8_e5m2, nccl_dtype::f8_e5m2, 1},
               {dtype::boolean, nccl_dtype::u8, 1},      {dtype::c64, nccl_dtype::f32, 2},
               {dtype::c128, nccl_dtype::f64, 2}};
  for (const auto& row : table)
    if (row.ours == t) {
      to.type = row.theirs;
      to.per_element = row.per_element;
      return true;
    }
  return false;
}

/// False where it has no such reduction of bool, whose values are the bytes 0 and 1.
constexpr bool nccl_logic_of(reduction_kind k, nccl_reduction& to) noexcept {
  const bool any = k == reduction_kind::sum || k == reduction_kind::max || k == reduction_kind::bor;
  const bool all = k == reduction_kind::prod || k == reduction_kind::min || k == reduction_kind::band;
  to = any ? nccl_reduction::op_max : nccl_reduction::op_min;
  return any || all;
}

}  // namespace detail

/// How NCCL of this version reduces elements of type `t` over so many ranks. The mean: NCCL adds integers and divides,
/// towards zero, but multiplies floats by 1/ranks first, a factor that is rounded to their type. That is within an ulp
/// or two for float and double, exact where the number of ranks is a power of two, and up to 0.4 % off (bfloat16) or 6
/// % (E4M3) in every element where it is not: such a mean of a narrow type is a sum that a kernel divides, which rounds
/// once more and overflows where the sum does; without a kernel it is refused.
constexpr nccl_operand nccl_operand_of(dtype t, reduction_kind k, int ranks, int version,
                                       nccl_division by = nccl_division::none) noexcept {
  nccl_operand o;
  const bool complex = t == dtype::c64 || t == dtype::c128;
  const bool eight = t == dtype::f8_e4m3 || t == dtype::f8_e5m2;
  const bool narrow = eight || t == dtype::f16 || t == dtype::bf16;
  if (!detail::nccl_type_of(t, o)) {
    o.why = "NCCL cannot compute with this type; use 32 bits, or reduce on the host";
  } else if (eight && version < 22400) {
    o.why = "8-bit floats need NCCL 2.24 or newer";
  } else if (t == dtype::boolean) {
    if (!detail::nccl_logic_of(k, o.with)) o.why = "NCCL has no such reduction of bool; use integers";
  } else if (complex && k != reduction_kind::sum && k != reduction_kind::mean) {
    o.why = "NCCL can add complex numbers and average them, nothing else";
  } else {
    switch (k) {
      case reduction_kind::sum:
        break;
      case reduction_kind::prod:
        o.with = nccl_reduction::op_prod;
        break;
      case reduction_kind::min:
        o.with = nccl_reduction::op_min;
        break;
      case reduction_kind::max:
        o.with = nccl_reduction::op_max;
        break;
      case reduction_kind::mean:
        if (ranks == 1) break;  // the sum is the mean; NCCL (2.28 to 2.30) cannot multiply 8-bit floats of one rank
        o.with = nccl_reduction::op_avg;
        if (!narrow || detail::exact_reciprocal(t, ranks)) break;
        o.with = nccl_reduction::op_sum;
        o.divisor = ranks;
        if (by == nccl_division::none)
          o.why =
              "NCCL would multiply by 1/ranks rounded to this type, a wrong mean for a number of ranks that is not a "
              "power of two; use a backend with a kernel for means (nccl_dividing), sum and divide, or float";
        break;
      case reduction_kind::premul_sum:
        o.scaled = true;
        if (eight && ranks == 1)
          o.why = "NCCL cannot multiply 8-bit floats in a world of one rank; use float16, or a kernel of your own";
        break;
      default:
        o.why = "NCCL has sum, prod, min, max, mean and premul_sum; other reductions run on the host only";
    }
  }
  return o;
}

}  // namespace tutti
