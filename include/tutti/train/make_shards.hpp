#pragma once
#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::train::detail {

/// What `make()` returns, on all ranks or on none: the memory of a step over `units` of parameters by a rule with this
/// many slots. Collective; blocks. Errors: a rank on which make() throws passes its own exception on, the others get
/// error{out_of_resources} with its words; error{mismatch} on all ranks where units, types or rules differ.
template <class Comm, class Make>
auto make_shards(Comm& world, const char* who, std::span<const std::size_t> units, dtype type, std::size_t slots,
                 dtype remembered, Make make, const std::source_location& where) {
  std::vector<grad::parameter_shape> shapes;
  shapes.reserve(units.size() + 1);
  for (const std::size_t elements : units) shapes.push_back({"", elements, type});
  shapes.push_back({"the rule's slots", slots, remembered});
  const auto id = [&](const auto&) { return grad::make_plan(shapes).id(); };
  return grad::detail::make_alike(world, who, shapes, make, id, where);
}

}  // namespace tutti::train::detail
