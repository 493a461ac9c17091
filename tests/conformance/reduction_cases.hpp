#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/core/location.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/reduction/raw_reduction.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>
#include <core/reduction_oracle.hpp>

namespace conformance {

/// Operands whose reduction is exact in any order, or values of many magnitudes, whose bits tell the order and each
/// rounding.
enum class style { exact, rough };

/// One reduction of one type, and no type: what the communicator's face makes of a call, with operands and results
/// that repeat after `period` elements. Whatever runs through all of them is compiled once.
struct reduction_case {
  static constexpr int most = 9;  // ranks

  std::string title;  // "float16, mean"
  tutti::dtype type = tutti::dtype::opaque;
  std::uint32_t bytes = 1, significant = 1;  // of an element; the rest of it is padding
  std::size_t period = 61;                   // prime
  tutti::reduction (*with)(int rank) = nullptr;
  bool inexact = false;
  // Of rank r, and over the ranks 0 to r.
  std::array<std::vector<std::byte>, most> operands[2], results[2];

  [[nodiscard]] const std::vector<std::byte>& operand(style s, int rank) const {
    return operands[static_cast<std::size_t>(s)][static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const std::vector<std::byte>& result(style s, int terms) const {
    return results[static_cast<std::size_t>(s)][static_cast<std::size_t>(terms - 1)];
  }
};

template <class T>
T rough_part(tutti::reduction_kind kind, std::uint64_t h) {
  const int limit = sizeof(T) == 1 ? 4 : 7;  // sums of nine times nine of them are finite
  const double fraction = static_cast<double>(h >> 12) * 0x1p-52;
  const double size =
      kind == tutti::reduction_kind::prod
          ? 2.25 + 1.5 * fraction
          : std::ldexp(1 + fraction, static_cast<int>(h % static_cast<unsigned>(2 * limit + 1)) - limit);
  const auto third = static_cast<wide<T>>(size) / 3;  // all bits of the mantissa, however many
  return static_cast<T>((h >> 8) % 2 == 0 ? third : -third);
}

template <class T>
T operand_of(style s, tutti::reduction_kind kind, int rank, std::size_t i, std::uint64_t salt) {
  const std::uint64_t h = mix(mix(salt) + i + static_cast<std::uint64_t>(rank) * 4096);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<T>(h);  // sums and products wrap, in any order to the same
  else if constexpr (tutti::complex_number<T>) {
    using real = typename T::value_type;
    if (s == style::rough && kind != tutti::reduction_kind::prod)
      return T(rough_part<real>(kind, h), rough_part<real>(kind, mix(h)));
  } else if constexpr (!std::is_integral_v<T>)
    if (s == style::rough) return rough_part<T>(kind, h);
  return operand<T>(kind, rank, i, salt);
}

/// `operand(style, rank, i)`, and `result(column)` of the operands of some ranks.
template <class T, class Operand, class Result>
reduction_case make_case(std::string title, tutti::reduction (*with)(int), Operand operand, Result result) {
  constexpr bool x87 = std::is_same_v<T, long double> && std::numeric_limits<long double>::digits == 64;
  reduction_case c;
  c.title = type_name<T>() + ", " + std::move(title);
  c.type = tutti::dtype_of<T>();
  c.bytes = sizeof(T);
  c.significant = x87 ? 10 : sizeof(T);
  if (sizeof(T) > 64) c.period = 7;
  c.with = with;
  const auto put = [](std::vector<std::byte>& to, std::size_t i, const T& x) {
    std::memcpy(&to[i * sizeof(T)], &x, sizeof(T));
  };
  for (const style s : {style::exact, style::rough}) {
    auto &in = c.operands[static_cast<std::size_t>(s)], &out = c.results[static_cast<std::size_t>(s)];
    for (auto* all : {&in, &out})
      for (auto& one : *all) one.resize(c.period * sizeof(T));
    for (std::size_t i = 0; i < c.period; ++i) {
      std::vector<T> column;
      for (int r = 0; r < reduction_case::most; ++r) {
        column.push_back(operand(s, r, i));
        put(in[static_cast<std::size_t>(r)], i, column.back());
        put(out[static_cast<std::size_t>(r)], i, result(column));
      }
    }
  }
  c.inexact = c.operands[0] != c.operands[1];
  return c;
}

template <class T>
reduction_case named_case(tutti::reduction_kind kind, tutti::reduction (*with)(int), std::uint64_t salt) {
  return make_case<T>(
      tutti::name(kind), with, [=](style s, int rank, std::size_t i) { return operand_of<T>(s, kind, rank, i, salt); },
      [=](const std::vector<T>& column) { return reduction_oracle::oracle<T>(kind, column, true); });
}

/// Every rank has its own factor.
template <class T>
constexpr int factor_of(int rank) noexcept {
  return tutti::narrow_float<T> && sizeof(T) == 1 ? 1 - rank % 2 * 2 : rank + 1;
}
template <class T>
T scaled(const T& x, int factor) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(factor));
  else if constexpr (tutti::complex_number<T>)
    return x * static_cast<typename T::value_type>(factor);
  else
    return static_cast<T>(static_cast<wide<T>>(x) * static_cast<wide<T>>(factor));
}
template <class T>
reduction_case premul_case(std::uint64_t salt) {
  constexpr auto kind = tutti::reduction_kind::sum;
  return make_case<T>(
      "premul_sum", [](int rank) { return tutti::erase_type<T>(tutti::premul_sum(factor_of<T>(rank))); },
      [=](style s, int rank, std::size_t i) { return operand_of<T>(s, kind, rank, i, salt); },
      [=](std::vector<T> column) {
        for (std::size_t r = 0; r < column.size(); ++r)
          column[r] = scaled<T>(column[r], factor_of<T>(static_cast<int>(r)));
        return reduction_oracle::oracle<T>(kind, column, true);
      });
}

/// Users' reductions of elements that the library knows nothing about; `make(h)` is an element of 64 random bits.
template <class T, class Make, class Op>
reduction_case custom_case(std::string title, tutti::reduction (*with)(int), Make make, Op combine) {
  return make_case<T>(
      std::move(title), with,
      [=](style, int rank, std::size_t i) { return make(mix(i + static_cast<std::uint64_t>(rank) * 4096), rank); },
      [=](const std::vector<T>& column) {
        T all = column[0];
        for (std::size_t r = 1; r < column.size(); ++r) all = combine(all, column[r]);
        return all;
      });
}

struct combine_odds {
  odd operator()(const odd& x, const odd& y) const noexcept {
    return {static_cast<std::uint8_t>(x.a + y.a), static_cast<std::uint8_t>(x.b ^ y.b), std::max(x.c, y.c)};
  }
};
struct add_pages {
  page operator()(page x, const page& y) const noexcept {
    for (std::size_t w = 0; w < 1024; ++w) x.words[w] += y.words[w];
    return x;
  }
};
struct add_below {
  std::uint32_t modulus;
  std::uint32_t operator()(std::uint32_t x, std::uint32_t y) const noexcept { return (x + y) % modulus; }
};

/// Three words: their sum, their exclusive or, their maximum.
struct words {
  std::uint32_t w[3];
  bool operator==(const words&) const = default;
};
inline void mix_words(const void* in, void* inout, std::size_t element, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += element) {
    std::uint32_t a[3], b[3];
    std::memcpy(a, static_cast<std::byte*>(inout) + at, sizeof a);
    std::memcpy(b, static_cast<const std::byte*>(in) + at, sizeof b);
    a[0] += b[0], a[1] ^= b[1], a[2] = a[2] < b[2] ? b[2] : a[2];
    std::memcpy(static_cast<std::byte*>(inout) + at, a, sizeof a);
  }
}

inline void add_custom_cases(std::vector<reduction_case>& all) {
  using at = tutti::value_at<double>;
  const auto place = [](std::uint64_t h, int rank) { return at{static_cast<double>(h % 5), rank}; };
  const auto choose = [](bool least) {
    return [least](const at& x, const at& y) { return (least ? y.value < x.value : x.value < y.value) ? y : x; };
  };
  all.push_back(
      custom_case<at>("minloc", [](int) { return tutti::erase_type<at>(tutti::minloc); }, place, choose(true)));
  all.push_back(
      custom_case<at>("maxloc", [](int) { return tutti::erase_type<at>(tutti::maxloc); }, place, choose(false)));
  all.push_back(custom_case<odd>(
      "a callable", [](int) { return tutti::erase_type<odd>(combine_odds{}); },
      [](std::uint64_t h, int) {
        return odd{static_cast<std::uint8_t>(h), static_cast<std::uint8_t>(h >> 8), static_cast<std::uint8_t>(h >> 16)};
      },
      combine_odds{}));
  all.push_back(custom_case<page>(
      "a callable", [](int) { return tutti::erase_type<page>(add_pages{}); },
      [](std::uint64_t h, int) { return element_of<page>(0, h); }, add_pages{}));
  constexpr std::uint32_t modulus = 1'000'003;
  all.push_back(custom_case<std::uint32_t>(
      "a callable with captures", [](int) { return tutti::erase_type<std::uint32_t>(add_below{modulus}); },
      [](std::uint64_t h, int) { return static_cast<std::uint32_t>(h % modulus); }, add_below{modulus}));
  all.push_back(custom_case<words>(
      "a function of bytes", [](int) { return tutti::erase_type(tutti::raw_reduction{&mix_words, sizeof(words)}); },
      [](std::uint64_t h, int) {
        return words{
            {static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(h >> 16), static_cast<std::uint32_t>(h >> 32)}};
      },
      [](words x, const words& y) {
        mix_words(&y, &x, sizeof x, sizeof x);
        return x;
      }));
}

/// All of them: every reduction of every dtype. Made once in a program.
inline const std::vector<reduction_case>& reduction_cases() {
  static const std::vector<reduction_case> all = [] {
    std::vector<reduction_case> made;
    const auto add = [&]<class T>() {
      const auto one = [&]<class Op>(Op) {
        if constexpr (tutti::reduction_for<Op, T>)
          made.push_back(named_case<T>(Op::kind, [](int) { return tutti::erase_type<T>(Op{}); }, made.size()));
      };
      one(tutti::sum), one(tutti::prod), one(tutti::min), one(tutti::max), one(tutti::mean);
      one(tutti::band), one(tutti::bor), one(tutti::bxor);
      if constexpr (!std::is_same_v<T, bool>) made.push_back(premul_case<T>(made.size()));
    };
    for_each(every_number{}, add);
    for_each(every_other_number{}, add);
    add_custom_cases(made);
    return made;
  }();
  return all;
}

}  // namespace conformance
