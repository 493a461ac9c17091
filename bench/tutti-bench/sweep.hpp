#pragma once
#include <cstddef>
#include <optional>

#include <tutti/tutti.hpp>

#include "collective.hpp"
#include "options.hpp"
#include "table.hpp"
#include "timing.hpp"

namespace bench {

using communicator = tutti::communicator<>;

/// Calls measure(elements of the larger buffer, where) for every size, out of place and in place if the collective
/// allows these, and writes a row of the table for each size, on rank 0.
template <class T, class Measure>
void sweep(const communicator& world, const options& o, table& rows, Measure measure) {
  if (o.collective == "barrier") {
    const timing t = measure(0, placements::in_place);
    if (world.rank() == 0) rows.row(world.size(), 0, 0, std::nullopt, t);
    return;
  }
  const collective& what = collective_of(o.collective);
  const auto ranks = static_cast<std::size_t>(world.size());
  for (const std::size_t asked : o.sizes()) {
    const std::size_t all = what.elements(asked, sizeof(T), ranks);
    std::optional<timing> out_of_place, in_place;
    if (what.where != placements::in_place) out_of_place = measure(all, placements::out_of_place);
    if (what.where != placements::out_of_place) in_place = measure(all, placements::in_place);
    if (world.rank() == 0) rows.row(world.size(), all * sizeof(T), what.count(all, ranks), out_of_place, in_place);
  }
}

}  // namespace bench
