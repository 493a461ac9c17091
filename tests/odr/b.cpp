#include <tutti/tutti.hpp>
