#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti_test {

/// For threads and tasks that are ranks: doctest's macros are for the main thread only, so what does not hold is thrown
/// and becomes the rank's outcome.
inline void expect(bool holds, std::string_view what) {
  if (!holds) throw std::runtime_error(std::string(what));
}
/// As above about one of many; the text is put together only where it is needed, as every element asks.
template <class Number>
void expect(bool holds, std::string_view what, Number number) {
  if (!holds) throw std::runtime_error(std::string(what) + ' ' + std::to_string(number));
}

}  // namespace tutti_test
