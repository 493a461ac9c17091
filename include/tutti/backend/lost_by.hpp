#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::detail {

/// How a handle of a captured operation ended that was not joined.
enum class lost_by : std::uint8_t {
  wait,  ///< and its caller is told
  drop   ///< which nobody can be told at once
};

}  // namespace tutti::detail
