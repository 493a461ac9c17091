#pragma once
#include <cstdint>

#include <tutti/config.hpp>

namespace tutti::detail {

/// The way in which a handle of a captured operation ended without a join.
enum class unjoined_end : std::uint8_t {
  wait,  ///< by wait(), whose caller gets the error
  drop   ///< by its destructor, which cannot report the error
};

}  // namespace tutti::detail
