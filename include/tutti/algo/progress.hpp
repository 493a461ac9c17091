#pragma once
#include <tutti/config.hpp>

namespace tutti::algo {

/// How much of a call has been done where it was issued, before there is a routine of it.
enum class progress { nothing, posted, all };

}  // namespace tutti::algo
