#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tutti/core/half.hpp>
#include <tutti/core/kernels/copy.hpp>
#include <tutti/core/kernels/fold.hpp>

#include <support/thread_state.hpp>

#include "levels.hpp"

namespace {

using namespace tutti::detail;
using tutti_test::upper_halves_in_use;

constexpr std::size_t counts[] = {1, 64, 100, 5000};

bool processor_tells() {
  if (tutti_test::tells_registers_in_use()) return true;
  MESSAGE("skipped: this processor does not tell which registers are in use (XGETBV with ecx = 1)");
  return false;
}

template <class T, class Op>
bool leaves_none(tutti::instruction_set level, std::size_t count) {
  std::vector<T> a(count), b(count), c(count);
  const void* const in[] = {a.data(), b.data()};
  void* const out[] = {a.data(), c.data()};
  bool none = true;
  for (const auto how : {tutti::stores::ordinary, tutti::stores::streaming})
    for (const int outputs : {1, 2}) {
      fold_kernel_for<T, Op>(level)(in, 2, out, outputs, count, how, 2);
      none = none && upper_halves_in_use() == 0;
    }
  return none;
}

TEST_CASE("registers: what this test looks at shows a register whose upper half is in use") {
  if (!processor_tells()) return;
  tutti_test::use_upper_half();
  const unsigned used = upper_halves_in_use();
  tutti_test::clear_upper_halves();
  CHECK(used != 0);
  CHECK(upper_halves_in_use() == 0);
}

TEST_CASE("registers: kernels leave no upper half in use, by any instruction set") {
  if (!processor_tells()) return;
  for (const auto level : kernels::levels())
    for (const std::size_t count : counts) {
      CAPTURE(std::string_view{name(level)});
      CAPTURE(count);
      CHECK(leaves_none<float, sum_op>(level, count));
      CHECK(leaves_none<double, mean_op>(level, count));
      CHECK(leaves_none<tutti::float16, max_op>(level, count));
      CHECK(leaves_none<tutti::bfloat16, mean_op>(level, count));
      CHECK(leaves_none<std::int8_t, min_op>(level, count));
      std::vector<float> from(count), to(count);
      scale<float>(from.data(), to.data(), count, 2.0F, level);
      CHECK(upper_halves_in_use() == 0);
      copy_streaming(to.data(), from.data(), count * sizeof(float), level);
      CHECK(upper_halves_in_use() == 0);
      copy_forward(to.data(), from.data(), count * sizeof(float), level);
      CHECK(upper_halves_in_use() == 0);
    }
}

}  // namespace
