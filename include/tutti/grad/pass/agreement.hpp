#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/task.hpp>
#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/pass/comparison.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad {

/// Returns "weight, 640 x float32", for messages.
[[nodiscard]] TUTTI_DECL std::string describe(const parameter_shape& p);

namespace detail {

/// Values that a rank that has failed sends in place of an id.
enum refusal : std::uint64_t { refused = 1, without_memory = 2 };

constexpr bool failed(std::uint64_t id) noexcept { return id == refused || id == without_memory; }

/// Compares `mine` of all ranks. Returns the first rank that has failed, or else the first that differs. Collective.
template <class Comm>
outlier compare(Comm& world, std::uint64_t mine, const std::source_location& where) {
  comparison ids;
  ids.begin(world, mine, {}, where).wait();
  const outlier bad = ids.find(&failed);
  return bad.rank >= 0 ? bad : ids.odd();
}

/// Returns a text that says how the models of rank `odd` and rank 0 of the communicator differ, if their plans do.
/// Collective.
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
  // Only these two ranks are compared: the others contribute rank 0's ids.
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
         " (bucket limits, ready_order, order, in_flight, delayed, unused, graph, replan, predivide or the memory of "
         "their "
         "gradients); give all ranks the same";
}

/// Returns `world`; throws usage_error if it has more ranks than the reducer can sum weights and flags of exactly.
template <class Comm>
Comm& countable(Comm& world) {
  if (world.size() > step_flags::most_ranks)
    throw usage_error("reducer: weights and flags of more than " + std::to_string(step_flags::most_ranks) +
                      " ranks do not add up exactly; reduce in groups");
  return world;
}

template <class Comm>
[[noreturn]] void throw_error(Comm& world, const char* who, errc kind, int rank, const std::string& what,
                              const std::source_location& where) {
  throw error({kind, 0, world.world_rank(rank), 0}, std::string(who) + ": " + what, {world.rank(), 0, who, where});
}

/// The call that a rank has begun.
enum class begun { pass, pass_without_samples, rebuild };
constexpr begun pass_of(double weight) noexcept { return weight > 0 ? begun::pass : begun::pass_without_samples; }

/// Throws the exception that is being handled. If it is an error{mismatch}, because ranks have met in different calls,
/// throws one that names those calls. Mentions rebuild() only if this rank called it, or if the other rank's call is
/// unknown or has the signature of agree_on_order().
[[noreturn]] TUTTI_DECL void throw_different_calls(begun here);

/// Gives all ranks rank 0's order. Collective. Begins on `first`, the communicator on which a pass begins, with an
/// all_reduce about as small as a pass's first one but of another size, so that ranks that begin a pass instead are
/// found, over messages too.
template <class Comm>
task<> agree_on_order(Comm& world, Comm& first, std::vector<int>& order, std::source_location where) {
  try {
    std::array<double, 3> here{};
    co_await first.all_reduce(here, sum, {}, where);
    co_await world.broadcast(order, 0, {}, where);
  } catch (...) {
    throw_different_calls(begun::rebuild);
  }
}

/// Compares ids, hashes of a plan and of all else that must be equal on all ranks. Throws error{mismatch} on all ranks
/// if they differ, with the first rank that differs from rank 0 and the first parameter that does. Collective.
template <class Comm>
void check_agreement(Comm& world, const char* who, std::span<const parameter_shape> shapes, std::uint64_t id,
                     const std::source_location& where) {
  if (const outlier odd = compare(world, id, where); odd.rank >= 0)
    throw_error(world, who, errc::mismatch, odd.rank, difference(world, shapes, odd.rank), where);
}

/// Returns what `make()` returns, on all ranks or on none. Collective. Throws as check_agreement() if the ranks'
/// results have different ids. If `make()` has thrown on a rank, that rank throws its exception, and the others throw
/// an error that names the rank and the reason.
template <class Comm, class Make, class Id>
auto make_agreed(Comm& world, const char* who, std::span<const parameter_shape> shapes, Make make, Id id_of,
                 const std::source_location& where) {
  std::optional<decltype(make())> made;
  std::exception_ptr failure;
  std::string why;
  std::uint64_t id = refused;
  try {
    made.emplace(make());
    id = id_of(*made);
  } catch (const usage_error& e) {
    failure = std::current_exception();
    why = e.what();
  } catch (const std::exception& e) {
    failure = std::current_exception();
    why = e.what();
    id = without_memory;
  }
  if (const outlier odd = compare(world, id, where); failed(odd.id)) {
    world.broadcast(why, odd.rank, {}, where).wait();
    if (failure) std::rethrow_exception(failure);
    throw_error(world, who, odd.id == refused ? errc::mismatch : errc::out_of_resources, odd.rank,
                "rank " + std::to_string(world.world_rank(odd.rank)) + " could not begin: " + why, where);
  } else if (odd.rank >= 0) {
    throw_error(world, who, errc::mismatch, odd.rank, difference(world, shapes, odd.rank), where);
  }
  return *std::move(made);
}

}  // namespace detail
}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/agreement.hpp>
#endif
