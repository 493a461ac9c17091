#pragma once
#include <string>

#include <tutti/core/error.hpp>

namespace tutti::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_moved_away() {
  throw usage_error("this communicator was moved away or closed; call the one that it was moved to");
}

/// Call and rank that a usage_error names, by world rank as in other errors.
struct call_context {
  const char* call;
  int rank = 0, ranks = 1;

  template <class Backend>
  static call_context in(const Backend& b, const char* call) noexcept {
    return {call, b.members().world_rank(b.rank()), b.size()};
  }

  /// Returns the caller of a communicator that was moved away or closed. Does not throw: only a call that refuses
  /// something does.
  static constexpr call_context moved_away(const char* call) noexcept { return {call, 0, 0}; }

  [[noreturn]] void refuse(const std::string& why) const {
    if (ranks == 0) throw_moved_away();
    throw usage_error(text(why));
  }
  [[nodiscard]] std::string text(const std::string& why) const {
    return std::string(call) + (ranks > 1 ? " on rank " + std::to_string(rank) : "") + ": " + why;
  }
};

}  // namespace tutti::detail
