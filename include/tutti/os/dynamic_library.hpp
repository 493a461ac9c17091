#pragma once
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>
#include <string>

#include <tutti/config.hpp>

namespace tutti::os {

/// A shared library that is loaded at run time and never unloaded: its threads may still run when nothing calls it any
/// more.
class dynamic_library {
 public:
  /// Loads the first of these that can be loaded; one that the process has loaded already takes precedence. Names
  /// without a slash are found as by the system's loader.
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
  /// Returns the loader's message about the first name.
  [[nodiscard]] const std::string& why_not() const noexcept { return why_; }

  /// Sets `f` to the function of this name; null if the library has none. Returns true if it has.
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

/// Lookup of functions that a library must have. The first missing one goes into `missing`, unless that is set already:
/// "<what> has no <symbol>; <needed>".
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
