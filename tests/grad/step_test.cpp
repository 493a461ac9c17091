#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <tutti/core/half.hpp>
#include <tutti/grad/step.hpp>
#include <vector>

using tutti::grad::request;
using tutti::grad::step;
using tutti::grad::step_flags;

TEST_CASE_TEMPLATE("step: what any of many ranks says is heard, and the rest of the line is left alone", T, float,
                   double, tutti::float16, tutti::bfloat16) {
  constexpr std::size_t line = 64 / sizeof(T);
  for (const int ranks : {1, 2, 9, 300, 4095})
    for (const request asked : {request::none, request::replan})
      for (int overflows = 0; overflows <= ranks; overflows += ranks)
        for (const int failures : {0, 1, ranks - overflows}) {
          if (overflows + failures > ranks) continue;
          std::array<T, line> all{};
          for (int r = 0; r < ranks; ++r) {
            std::array<T, line> mine;
            mine.fill(T(3.0f));
            const step s = r < failures               ? step::skip_failure
                           : r < failures + overflows ? step::skip_overflow
                                                      : step::apply;
            step_flags::put(s, std::span<T>{mine}, r == 0 ? asked : request::none);
            for (std::size_t i = 0; i + (sizeof(T) == 2 ? 3 : 1) < line; ++i)
              if (static_cast<float>(mine[i]) != 3.0f) FAIL("element " << i);
            for (std::size_t i = 0; i < line; ++i)
              all[i] = T(static_cast<float>(static_cast<float>(all[i]) + static_cast<float>(mine[i])));
          }
          const step expected = failures > 0 ? step::skip_failure : overflows > 0 ? step::skip_overflow : step::apply;
          CAPTURE(ranks);
          CAPTURE(overflows);
          CAPTURE(failures);
          CHECK(step_flags::take(std::span<const T>{all}) == expected);
          if (expected == step::apply) CHECK(step_flags::take_request(std::span<const T>{all}) == asked);
          for (T& x : all) x = T(static_cast<float>(x) / static_cast<float>(ranks));  // by a mean
          CHECK(step_flags::take(std::span<const T>{all}, ranks) == expected);
          if (expected == step::apply) CHECK(step_flags::take_request(std::span<const T>{all}, ranks) == asked);
        }
}

TEST_CASE("step: names") {
  CHECK(name(step::apply) == std::string{"apply"});
  CHECK(name(step::skip_overflow) == std::string{"skip_overflow"});
  CHECK(name(step::skip_failure) == std::string{"skip_failure"});
}
