#pragma once
#include <cassert>

#include <tutti/config.hpp>

/// Checks of preconditions that only a bug of the library itself can violate; out of builds with NDEBUG.
#define TUTTI_ASSERT(condition) assert(condition)
