#pragma once
#include <cstdint>
#include <string>

#include <tutti/config.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/layout.hpp>

/// The files of a flight recorder in a folder, for rank 3 of the first world of a process. The names of later worlds
/// contain their number: flight2_3, rank_3.world2.json.
///
///     flight_3        a pickle as PyTorch's flight recorder writes it, schema 2.10: for torchfrtrace
///     rank_3.json     the same, and what that schema has no place for
///     rank_3.ring     the recording itself (layout.hpp), for tutti-flight. It is always up to date where the
///                     recorder keeps it in this folder.
namespace tutti::watch {

namespace detail {
/// Returns the path of a rank's file: folder/rank_3.json, folder/rank_3.world2.json for the second world of a process.
TUTTI_DECL std::string path_in(const std::string& folder, const char* before, int rank, std::uint32_t number,
                               const char* after);
}  // namespace detail

TUTTI_DECL std::string pickle_path(const std::string& folder, int rank, std::uint32_t number);
TUTTI_DECL std::string json_path(const std::string& folder, int rank, std::uint32_t number);
TUTTI_DECL std::string ring_path(const std::string& folder, int rank, std::uint32_t number);

/// Returns a flight as a pickle. Names of calls and types are PyTorch's, since its analyser ends at others.
TUTTI_DECL std::string pickle_of(const flight& f);
TUTTI_DECL std::string json_of(const flight& f);

/// Writes both files into the folder, which is made if need be. Throws error{system} or {out_of_resources}.
TUTTI_DECL void dump(const flight& f, const std::string& folder);
/// Writes a copy of a recording that has no file of its own, in the same way.
TUTTI_DECL void dump_ring(const recording& r, const std::string& folder);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/dump.hpp>
#endif
