#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include <tutti/backend/nccl/operand.hpp>

namespace {

using tutti::dtype;
using tutti::nccl_dtype;
using tutti::nccl_operand;
using tutti::nccl_operand_of;
using tutti::nccl_reduction;
using kind = tutti::reduction_kind;

constexpr int now = 22809;
constexpr bool can(dtype t, kind k, int ranks = 4, int version = now) {
  return nccl_operand_of(t, k, ranks, version).why == nullptr;
}
constexpr bool is(dtype t, kind k, nccl_dtype type, nccl_reduction with, std::size_t per_element = 1) {
  const nccl_operand o = nccl_operand_of(t, k, 4, now);
  return o.why == nullptr && o.type == type && o.with == with && o.per_element == per_element && !o.scaled;
}

static_assert(is(dtype::f32, kind::sum, nccl_dtype::f32, nccl_reduction::op_sum));
static_assert(is(dtype::i64, kind::prod, nccl_dtype::i64, nccl_reduction::op_prod));
static_assert(is(dtype::u8, kind::min, nccl_dtype::u8, nccl_reduction::op_min));
static_assert(is(dtype::bf16, kind::max, nccl_dtype::bf16, nccl_reduction::op_max));
static_assert(is(dtype::f64, kind::mean, nccl_dtype::f64, nccl_reduction::op_avg));
static_assert(is(dtype::c64, kind::sum, nccl_dtype::f32, nccl_reduction::op_sum, 2));
static_assert(is(dtype::c128, kind::mean, nccl_dtype::f64, nccl_reduction::op_avg, 2));
static_assert(is(dtype::boolean, kind::sum, nccl_dtype::u8, nccl_reduction::op_max));
static_assert(is(dtype::boolean, kind::band, nccl_dtype::u8, nccl_reduction::op_min));
static_assert(nccl_operand_of(dtype::f16, kind::premul_sum, 4, now).scaled);

static_assert(!can(dtype::i16, kind::sum) && !can(dtype::u16, kind::sum) && !can(dtype::extended, kind::sum));
static_assert(!can(dtype::opaque, kind::custom) && !can(dtype::f32, kind::custom) && !can(dtype::u8, kind::raw));
static_assert(!can(dtype::i32, kind::band) && !can(dtype::boolean, kind::bxor) && !can(dtype::opaque, kind::minloc));
static_assert(!can(dtype::c64, kind::prod) && !can(dtype::c64, kind::premul_sum));
static_assert(can(dtype::f8_e4m3, kind::sum) && !can(dtype::f8_e4m3, kind::sum, 4, 22305));

// A mean whose factor is not a number of the type would be wrong in every element, and one of float16 over too many
// ranks in those that are normal numbers, but not when divided by so many.
static_assert(can(dtype::f32, kind::mean, 6) && can(dtype::f64, kind::mean, 6) && can(dtype::i32, kind::mean, 6));
static_assert(!can(dtype::f16, kind::mean, 6) && !can(dtype::bf16, kind::mean, 3));
static_assert(can(dtype::f16, kind::mean, 1) && can(dtype::f16, kind::mean, 1024) &&
              can(dtype::bf16, kind::mean, 4096));
static_assert(!can(dtype::f16, kind::mean, 2048));
// Of 8 bits, what is left of an operand that is divided by as few as two has lost some in too many values.
static_assert(can(dtype::f8_e4m3, kind::mean, 1) && !can(dtype::f8_e4m3, kind::mean, 2) &&
              !can(dtype::f8_e5m2, kind::mean, 2) && !can(dtype::f8_e5m2, kind::mean, 12));

// Before 2.29.7 a product of one rank may lack its last elements.
static_assert(nccl_operand_of(dtype::f32, kind::premul_sum, 1, 22903).in_pieces &&
              !nccl_operand_of(dtype::f32, kind::premul_sum, 1, 22907).in_pieces &&
              !nccl_operand_of(dtype::f32, kind::premul_sum, 2, 22903).in_pieces &&
              !nccl_operand_of(dtype::f32, kind::mean, 1, 22903).in_pieces);

// NCCL 2.28.9 has no kernel that multiplies 8-bit floats for a world of one rank: to be given one ends its
// communicator.
constexpr nccl_operand alone(dtype t, kind k) { return nccl_operand_of(t, k, 1, now); }
static_assert(alone(dtype::f8_e4m3, kind::mean).with == nccl_reduction::op_sum &&
              alone(dtype::f32, kind::mean).with == nccl_reduction::op_sum &&
              alone(dtype::i8, kind::mean).divisor == 1);
static_assert(!can(dtype::f8_e5m2, kind::premul_sum, 1) && can(dtype::f8_e5m2, kind::premul_sum, 2) &&
              can(dtype::bf16, kind::premul_sum, 1));

// With a kernel it is a sum that is divided.
constexpr nccl_operand divided(dtype t, int ranks) {
  return nccl_operand_of(t, kind::mean, ranks, now, tutti::nccl_division::kernel);
}
static_assert(divided(dtype::bf16, 3).why == nullptr && divided(dtype::bf16, 3).divisor == 3 &&
              divided(dtype::bf16, 3).with == nccl_reduction::op_sum);
static_assert(divided(dtype::f8_e4m3, 1024).divisor == 1024 && divided(dtype::f8_e5m2, 2).divisor == 2 &&
              divided(dtype::f16, 2048).divisor == 2048 && divided(dtype::f16, 2048).why == nullptr);
static_assert(divided(dtype::f16, 4).divisor == 1 && divided(dtype::f16, 4).with == nccl_reduction::op_avg);
static_assert(divided(dtype::bf16, 4).divisor == 1 && divided(dtype::bf16, 4).with == nccl_reduction::op_avg &&
              divided(dtype::f32, 3).divisor == 1 && divided(dtype::f8_e4m3, 1).divisor == 1);

TEST_CASE("nccl_operand: what NCCL cannot do has a reason that says what to do instead") {
  const auto says = [](dtype t, kind k, int ranks, const char* what) {
    return std::string(nccl_operand_of(t, k, ranks, now).why).find(what) != std::string::npos;
  };
  CHECK(says(dtype::bf16, kind::custom, 6, "host"));
  CHECK(says(dtype::bf16, kind::mean, 6, "1/ranks rounded to this type"));
  CHECK(says(dtype::f8_e4m3, kind::mean, 4, "8 bits"));
  CHECK(says(dtype::f16, kind::mean, 2048, "1024 ranks"));
  for (const dtype t : {dtype::f16, dtype::bf16, dtype::f8_e4m3, dtype::f8_e5m2})
    CHECK(says(t, kind::mean, 6, "(nccl_divide), "));
}

}  // namespace
