#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include <tutti/config.hpp>
#include <tutti/watch/flight.hpp>

namespace tutti::watch {

/// Returns the recording of another rank of a world: its file in `folder`, or the memory of its process `pid` (0: none)
/// if that runs on this machine, as the same user. The other rank need not do anything for it, so it may be stopped.
/// Nothing if there is none. `own` is the recording of a rank of the same world. Costs about 1 ms. May throw
/// std::bad_alloc.
TUTTI_DECL std::optional<flight> recording_of(const recording& own, const std::string& folder, int rank,
                                              std::int32_t pid);

/// Returns the number of the last collective that a rank has called in a group; 0 if none is recorded.
TUTTI_DECL std::uint64_t last_collective(const flight& f, std::uint32_t context) noexcept;

/// Returns the words for a rank's position, a sentence about "it": "its last call, all_reduce #20 (train.cpp:88,
/// 1000 x float32, max), ended 31 s ago", or "it has been in barrier #21 (train.cpp:95) for 31 s".
TUTTI_DECL std::string last_call_text(const flight& f);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/last_call.hpp>
#endif
