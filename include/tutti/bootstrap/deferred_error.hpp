#pragma once
#include <exception>

#include <tutti/config.hpp>

namespace tutti::detail {

/// The first error that this process alone has met: a file that it cannot read, a variable that it cannot understand.
/// It joins all the same and tells the others, which would wait for it until their deadline.
class deferred_error {
 public:
  /// What `f` returns, or nothing of its kind when that throws.
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
  void raise() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace tutti::detail
