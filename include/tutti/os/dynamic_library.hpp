#pragma once
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>
#include <string>

#include <tutti/config.hpp>

namespace tutti::os {

/// A shared library that is loaded at run time, and stays: what it began may go on when nobody calls it any more.
class dynamic_library {
 public:
  /// The first of these that can be loaded; one that the process has already goes first. Names without a slash are
  /// looked for where the system's loader looks.
  explicit dynamic_library(std::initializer_list<const char*> names) {
    for (const char* n : names)
      if (!handle_) handle_ = ::dlopen(n, RTLD_NOW | RTLD_NOLOAD);
    for (const char* n : names) {
      if (handle_) break;
      handle_ = ::dlopen(n, RTLD_NOW | RTLD_LOCAL);
      if (!handle_ && why_.empty()) why_ = last_words(n);
    }
    if (!handle_ && why_.empty()) why_ = "no library was named";
  }

  [[nodiscard]] bool loaded() const noexcept { return handle_ != nullptr; }
  /// What the loader said of the first name.
  [[nodiscard]] const std::string& why_not() const noexcept { return why_; }

  /// Sets `f` to the function of this name; null where the library has none. True if it has.
  template <class F>
  bool find(F*& f, const char* symbol) const noexcept {
    void* const p = handle_ ? ::dlsym(handle_, symbol) : nullptr;
    static_assert(sizeof(f) == sizeof(p));
    std::memcpy(&f, &p, sizeof(p));
    return p != nullptr;
  }

 private:
  static std::string last_words(const char* n) {
    const char* const said = ::dlerror();
    return said ? said : std::string(n) + " cannot be loaded";
  }

  void* handle_ = nullptr;
  std::string why_;
};

/// Finds the functions without which a library is of no use. The first that it lacks goes into `missing`, unless that
/// says something already: "<what> has no <symbol>; <needed>".
struct required_functions {
  const dynamic_library& library;
  std::string& missing;
  const char* what;
  const char* needed;

  template <class F>
  void operator()(F*& f, const char* symbol) const {
    if (!library.find(f, symbol) && missing.empty()) missing = std::string(what) + " has no " + symbol + "; " + needed;
  }
};

}  // namespace tutti::os
