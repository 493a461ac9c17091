#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launch {

/// The parts of "4,5,6,7"; throws `failure` with status 2 for an empty one, one that stands twice, or one that is
/// neither a number nor the UUID of a GPU.
std::vector<std::string> parse_devices(std::string_view list);

/// CUDA_VISIBLE_DEVICES for each rank: rank r has devices[r] alone, so that it is its device 0. Where `inherited`, the
/// CUDA_VISIBLE_DEVICES that the ranks would have had, names devices itself, a number counts those, and a UUID must be
/// one of them. Throws `failure` with status 2 for fewer devices than ranks, or one that is not there.
std::vector<std::string> visible_devices(const std::vector<std::string>& devices, int ranks,
                                         const std::string* inherited);

}  // namespace tutti::launch
