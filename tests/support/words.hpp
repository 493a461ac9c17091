#pragma once
#include <string>
#include <string_view>

#include <tutti/core/error.hpp>

namespace tutti_test {

/// The words of the exception that `f` throws.
template <class Exception, class F>
std::string words_of(F f) {
  try {
    f();
  } catch (const Exception& e) {
    return e.what();
  }
  return "(nothing was thrown)";
}
/// Those of a usage_error.
template <class F>
std::string complaint(F f) {
  return words_of<tutti::usage_error>(f);
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace tutti_test
