#pragma once
#include <tutti/config.hpp>

namespace tutti::algo {

/// Progress of a call inside the function that issues it, before there is a coroutine: not begun, posted, or complete.
enum class progress { nothing, posted, all };

}  // namespace tutti::algo
