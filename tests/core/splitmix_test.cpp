#include <doctest/doctest.h>

#include <cstdint>
#include <tutti/core/splitmix.hpp>

using namespace tutti::detail;

// The first numbers of SplitMix64 from the seed 0, as in Java's SplittableRandom: seeds and shuffles must stay.
static_assert(splitmix(splitmix_step) == 0xe220a8397b1dcdafu);
static_assert(splitmix(2 * splitmix_step) == 0x6e789e6aa1b965f4u);
static_assert(splitmix(3 * splitmix_step) == 0x06c45d188009454fu);
static_assert(splitmix(0) == 0);
