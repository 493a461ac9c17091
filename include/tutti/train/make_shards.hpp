#pragma once
#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::train::detail {

/// Returns what `make()` returns, on all ranks or on none: the memory of a sharded optimizer for `units` of parameters
/// and a rule with `slots` numbers for each. Collective; blocks. Errors: error{mismatch} on all ranks if units, types
/// or slots differ; if `make()` throws on a rank, that rank throws its exception and the others an error with its
/// message.
template <class Comm, class Make>
auto make_shards(Comm& world, const char* who, std::span<const std::size_t> units, dtype type, std::size_t slots,
                 dtype remembered, Make make, const std::source_location& where) {
  std::vector<grad::parameter_shape> shapes;
  shapes.reserve(units.size() + 1);
  for (const std::size_t elements : units) shapes.push_back({"", elements, type});
  shapes.push_back({"the rule's slots", slots, remembered});
  const auto id = [&](const auto&) { return grad::make_plan(shapes).id(); };
  return grad::detail::make_agreed(world, who, shapes, make, id, where);
}

}  // namespace tutti::train::detail
