// The library tutti::compiled.
#include <tutti/impl/src.hpp>
