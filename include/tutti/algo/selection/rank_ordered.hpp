#pragma once
#include <array>

#include <tutti/core/options.hpp>

namespace tutti::algo {

/// Algorithms that fold every element in rank order with one rounding, and therefore give the same bits.
inline constexpr std::array rank_ordered{algorithm::direct, algorithm::pairwise};

}  // namespace tutti::algo
