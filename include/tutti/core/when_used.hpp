#pragma once

namespace tutti {

/// The parameter of classes that most translation units include and never use: a template's members are compiled only
/// where they are called, so that `#include <tutti/tutti.hpp>` stays cheap. Such a class has an alias without `basic_`
/// and is used by it, as if it were no template.
struct when_used;

}  // namespace tutti
