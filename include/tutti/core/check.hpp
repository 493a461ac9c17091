#pragma once
#include <cassert>

#include <tutti/config.hpp>

/// Checks a precondition that only a bug of the library itself can violate. Does nothing in builds with NDEBUG.
#define TUTTI_ASSERT(condition) assert(condition)
