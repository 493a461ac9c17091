#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/when_used.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// "weight, 640 x float32" as messages show it.
template <class = when_used>
[[nodiscard]] std::string describe(const parameter_shape& p) {
  std::string text =
      (p.name.empty() ? "" : p.name + ", ") + std::to_string(p.count) + " x " + std::string(tutti::name(p.type));
  if (p.rows > 1) text += " in " + std::to_string(p.rows) + " rows";
  return text;
}

namespace detail {

/// Compares `mine` of all ranks; the first rank that differs from rank 0, or -1.
template <class Comm>
int first_that_differs(Comm& world, std::uint64_t mine, const std::source_location& where) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span{&mine, 1}, all, {}, where).wait();
  const auto odd = std::find_if(all.begin(), all.end(), [&](std::uint64_t id) { return id != all[0]; });
  return odd == all.end() ? -1 : static_cast<int>(odd - all.begin());
}

/// What the ranks' models differ in, when their plans do: in rank `odd` and rank 0 of the communicator.
template <class Comm>
std::string difference(Comm& world, std::span<const parameter_shape> shapes, int odd) {
  const auto who = [&](int r) { return "rank " + std::to_string(world.world_rank(r)); };
  const auto of = [&](int r, std::string text) {
    world.broadcast(text, r).wait();
    return text;
  };
  const std::string theirs = of(odd, std::to_string(shapes.size())), ours = of(0, std::to_string(shapes.size()));
  std::vector<std::uint64_t> mine;
  const auto both = static_cast<std::size_t>(world.all_reduce(shapes.size(), min).wait());
  for (std::size_t i = 0; i < both; ++i) {
    const parameter_shape unnamed{"", shapes[i].count, shapes[i].type, shapes[i].rows};
    mine.push_back(make_plan({&unnamed, 1}).id());
  }
  // Only these two are compared: the others take part with what rank 0 has.
  std::vector<std::uint64_t> first = mine;
  world.broadcast(first, 0).wait();
  if (world.rank() != odd) mine = first;
  world.broadcast(mine, odd).wait();
  const auto at = static_cast<std::size_t>(std::mismatch(mine.begin(), mine.end(), first.begin()).first - mine.begin());
  if (at < both) {
    const std::string a = of(odd, describe(shapes[at])), b = of(0, describe(shapes[at]));
    return "parameter " + std::to_string(at) + " is " + a + " on " + who(odd) + " and " + b + " on " + who(0) +
           "; all ranks must build the same model";
  }
  if (theirs != ours)
    return who(odd) + " has " + theirs + " parameters and " + who(0) + " has " + ours +
           "; all ranks must build the same model";
  return who(odd) + " has other options than " + who(0) +
         " (bucket limits, order, tracking of unused parameters or predivide); give all ranks the same";
}

/// Throws error{mismatch} on all ranks where ids, of a plan and what else must be the same, differ: the first rank that
/// differs from rank 0 and the first parameter that does. Collective.
template <class Comm>
void check_agreement(Comm& world, const char* who, std::span<const parameter_shape> shapes, std::uint64_t id,
                     const std::source_location& where) {
  const int odd = first_that_differs(world, id, where);
  if (odd < 0) return;
  const std::string what = difference(world, shapes, odd);
  throw error({errc::mismatch, 0, world.world_rank(odd), 0}, std::string(who) + ": " + what,
              {world.rank(), 0, who, where});
}

}  // namespace detail
}  // namespace tutti::grad
