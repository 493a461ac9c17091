#pragma once
#include <string>

#include <tutti/core/error.hpp>

namespace tutti::detail {

/// Who made a call, to be named where its arguments are refused: by world rank, as in other errors.
struct caller {
  const char* call;
  int rank = 0, ranks = 1;

  template <class Backend>
  static caller in(const Backend& b, const char* call) noexcept {
    return {call, b.members().world_rank(b.rank()), b.size()};
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw usage_error(std::string(call) + (ranks > 1 ? " on rank " + std::to_string(rank) : "") + ": " + why);
  }
};

}  // namespace tutti::detail
