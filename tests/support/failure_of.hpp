#pragma once
#include <string>

#include <tutti/core/error.hpp>

namespace tutti_test {

/// What a call threw; errc::ok where it did not.
struct failure {
  tutti::errc kind = tutti::errc::ok;
  int peer = -1;
  std::string text;
  [[nodiscard]] bool mentions(const std::string& part) const { return text.find(part) != std::string::npos; }
};

/// Only a tutti::error is caught: a usage_error is the test's own.
template <class Call>
[[nodiscard]] failure failure_of(Call&& call) {
  try {
    call();
    return {};
  } catch (const tutti::error& e) {
    return {e.kind(), e.peer(), e.what()};
  }
}

}  // namespace tutti_test
