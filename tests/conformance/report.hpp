#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/options.hpp>

#include <support/grid.hpp>

namespace conformance {

/// For loops over literals.
using sizes = std::vector<std::size_t>;
using ways = std::vector<tutti::algorithm>;

/// One case, as a failure names it.
struct which {
  std::string collective;
  tutti::algorithm via = tutti::algorithm::automatic;
  int rank = 0, size = 1;
  std::size_t count = 0;
  std::string type;
  std::string note;  // "sum, in place", "root 3", …
};

[[noreturn]] inline void fail(const which& c, const std::string& what) {
  throw std::runtime_error(c.collective + " (" + tutti::name(c.via) + ", " + std::to_string(c.count) + " x " + c.type +
                           (c.note.empty() ? "" : ", " + c.note) + ") on rank " + std::to_string(c.rank) + " of " +
                           std::to_string(c.size) + ": " + what);
}

inline void expect(bool holds, const which& c, const std::string& what) {
  if (!holds) fail(c, what);
}

template <class T>
std::string type_name() {
  return std::string(tutti::name(tutti::dtype_of<T>())) +
         (tutti::dtype_of<T>() == tutti::dtype::opaque ? " of " + std::to_string(sizeof(T)) + " bytes" : "");
}

template <class T>
std::string to_text(const T& value) {
  if constexpr (tutti::narrow_float<T>)
    return std::to_string(static_cast<float>(value));
  else if constexpr (std::is_floating_point_v<T>)
    return std::to_string(value);
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return std::to_string(static_cast<long long>(value));
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(static_cast<unsigned long long>(value));
  else
    return "another value";
}

/// got[i] == expected(i) for all i.
template <class T, class Expected>
void expect_equal(const which& c, std::span<T> got, const Expected& expected) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::remove_const_t<T> wanted = expected(i);
    if (!(got[i] == wanted))
      fail(c, "element " + std::to_string(i) + " is " + to_text(got[i]) + ", expected " + to_text(wanted));
  }
}

/// How many counts each check is tried with: all, or some of the short, the odd and the long ones, or of these the
/// short and the odd ones only.
enum class grid { full, thin, light };

/// The suite as one rank goes through it: every rank takes the same steps, so that the salts agree.
template <class World>
struct session {
  World& world;
  grid how = grid::full;
  std::uint64_t steps = 0;

  /// Of a list that ends with the most.
  template <class T>
  [[nodiscard]] std::vector<T> some_of(std::vector<T> all) const {
    if (how == grid::full) return all;
    if (how == grid::light && all.size() > 1) all.pop_back();
    return tutti_test::every_third(all);
  }
  [[nodiscard]] sizes counts(const sizes& all) const { return some_of(all); }

  [[nodiscard]] std::uint64_t salt() noexcept { return ++steps; }
  [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(world.size()); }
  [[nodiscard]] which name(std::string collective, std::size_t count = 0, std::string type = "element",
                           tutti::algorithm via = tutti::algorithm::automatic) const {
    return {std::move(collective), via, world.rank(), world.size(), count, std::move(type), {}};
  }

  /// Those of `candidates` that the world's backend can be asked for, by this collective.
  template <class Args>
  [[nodiscard]] ways algorithms(ways candidates, std::size_t element_bytes) const {
    std::erase_if(candidates, [&](tutti::algorithm a) {
      if constexpr (requires { world.backend().template can<Args>(a, element_bytes); })
        return !world.backend().template can<Args>(a, element_bytes);
      else
        return a != tutti::algorithm::automatic;
    });
    return candidates;
  }
};

}  // namespace conformance
