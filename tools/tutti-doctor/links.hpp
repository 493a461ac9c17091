#pragma once

#include <tutti/bootstrap/init.hpp>

#include "report.hpp"

namespace tutti::doctor {

/// Adds to `mine` its place in the world, and the ranks to which this one cannot connect over TCP. Waits at most 3 s.
void look_at_peers(const communicator<>& world, rank_facts& mine);

/// Gathers the facts of all ranks on rank 0, then measures each pair of ranks and each clock while the others wait.
/// Collective. Returns the report on rank 0, an empty one elsewhere. Pairs are not measured if a rank cannot reach
/// another. Of more than 512 pairs, those of the machines' lowest ranks are measured, and of each rank with the lowest
/// of its machine.
report examine(communicator<>& world, const rank_facts& mine);

}  // namespace tutti::doctor
