#pragma once
#include <string>

#include <tutti/core/error.hpp>

namespace tutti::detail {

/// Which call of which rank: who is named where its arguments are refused.
struct caller {
  const char* call;
  int rank = 0, ranks = 1;

  [[noreturn]] void refuse(const std::string& why) const {
    throw usage_error(std::string(call) + (ranks > 1 ? " on rank " + std::to_string(rank) : "") + ": " + why);
  }
};

}  // namespace tutti::detail
