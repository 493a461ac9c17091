#pragma once
#include <exception>

#include <tutti/config.hpp>

namespace tutti::detail {

/// First error that only this process has met, such as a file that it cannot read or a variable that is malformed. The
/// process joins its world nevertheless and reports the error there: the others would wait for it until their deadline.
class deferred_error {
 public:
  /// Returns the result of `f`; if `f` throws, records the exception and returns a default value.
  template <class F>
  auto noting(F f) -> decltype(f()) {
    try {
      return f();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
      return {};
    }
  }
  explicit operator bool() const noexcept { return first_ != nullptr; }
  /// Throws the recorded error, if there is one.
  void raise() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace tutti::detail
