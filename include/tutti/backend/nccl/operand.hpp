#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction/ops.hpp>

namespace tutti {

/// The way in which sums of NCCL can be divided.
enum class nccl_division : std::uint8_t { none, kernel };

/// Elements and a reduction in NCCL's terms.
struct nccl_operand {
  nccl_dtype type = nccl_dtype::u8;
  std::size_t per_element = 1;  ///< NCCL's elements per element
  nccl_reduction with = nccl_reduction::op_sum;
  bool scaled = false;        ///< a premul_sum, whose reduction is made for the call
  bool in_pieces = false;     ///< ... which must be cut, as NCCL may leave out elements behind the last 16 KiB
  int divisor = 1;            ///< divides NCCL's result: a mean that NCCL computes wrongly
  const char* why = nullptr;  ///< the reason why NCCL cannot, with the remedy; null if it can
};

namespace detail {

constexpr bool is_eight_bit_float(dtype t) noexcept { return t == dtype::f8_e4m3 || t == dtype::f8_e5m2; }

/// Returns why NCCL's own mean over several ranks is wrong; null if it is not. NCCL adds operands multiplied by
/// 1/ranks, with factor and products rounded to the type.
constexpr const char* why_no_mean(dtype t, int ranks) noexcept {
  if (is_eight_bit_float(t))  // half an operand has lost a bit below 2^-5 (E4M3): as most gradients
    return "NCCL would round each operand / ranks to 8 bits, a wrong mean of small numbers; use a wider type, or a "
           "backend with a kernel for means (nccl_divide), or sum and divide";
  if (t != dtype::f16 && t != dtype::bf16) return nullptr;
  if ((ranks & (ranks - 1)) != 0)
    return "NCCL would multiply by 1/ranks rounded to this type, a wrong mean for a number of ranks that is not a "
           "power of two; use a backend with a kernel for means (nccl_divide), sum and divide, or float";
  if (t == dtype::f16 && ranks > 1024)  // with more, the smallest normal number / ranks rounds to 0
    return "NCCL would make nothing of normal float16 numbers that are divided by more than 1024 ranks; use a backend "
           "with a kernel for means (nccl_divide), sum and divide, or bfloat16";
  return nullptr;
}

/// Sets NCCL's type of the same values. Returns false for types that it cannot compute with.
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

/// Sets NCCL's reduction of bools, whose values are the bytes 0 and 1. Returns false if it has none.
constexpr bool nccl_logic_of(reduction_kind k, nccl_reduction& to) noexcept {
  const bool any = k == reduction_kind::sum || k == reduction_kind::max || k == reduction_kind::bor;
  const bool all = k == reduction_kind::prod || k == reduction_kind::min || k == reduction_kind::band;
  to = any ? nccl_reduction::op_max : nccl_reduction::op_min;
  return any || all;
}

}  // namespace detail

/// Returns how NCCL of this version reduces elements of type `t` over `ranks` ranks. Means: NCCL adds integers and
/// divides, towards zero, but multiplies each float by 1/ranks first, and rounds factor and product. That is within an
/// ulp or two for float and double. In 16 bits it is exact over powers of two, except for float16 operands below 2^-14
/// x ranks: their mean is off by up to 2^-25 x ranks, and those no larger than that count as 0. Over other numbers of
/// ranks the factor is up to 0.4 % off (bfloat16). 8-bit floats lose bits in the range of most gradients. So means of
/// 8-bit floats, and of 16-bit floats if the number of ranks is no power of two or, for float16, above 1024, are sums
/// that a kernel divides: right if the sum does not overflow the type. One that does is an infinity, in 8 bits the
/// largest number (NCCL saturates). Without a kernel they are refused.
constexpr nccl_operand nccl_operand_of(dtype t, reduction_kind k, int ranks, int version,
                                       nccl_division by = nccl_division::none) noexcept {
  nccl_operand o;
  const bool complex = t == dtype::c64 || t == dtype::c128;
  const bool eight = detail::is_eight_bit_float(t);
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
        o.why = detail::why_no_mean(t, ranks);
        if (!o.why) {
          o.with = nccl_reduction::op_avg;
        } else if (by == nccl_division::kernel) {
          o.divisor = ranks;
          o.why = nullptr;
        }
        break;
      case reduction_kind::premul_sum:
        o.scaled = true;
        o.in_pieces = ranks == 1 && version < 22907;
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
