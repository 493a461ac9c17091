#pragma once
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/config.hpp>

namespace tutti_test {

/// Under a sanitizer a test takes ten to twenty times as long, and what is wrong shows in any case of the path it is
/// on: there each path is taken once, not with every count and number of ranks.
inline constexpr bool slow = tutti::detail::thread_sanitizer || tutti::detail::address_sanitizer;

/// True if conformance runs take a part of their cases only: TUTTI_TEST_GRID=reduced, as `./dev test` sets it. Without
/// it they take all of them, as in `./dev check`.
inline bool reduced() {
  static const bool is = [] {
    const char* text = std::getenv("TUTTI_TEST_GRID");
    const std::string wanted = text != nullptr ? text : "full";
    if (wanted != "full" && wanted != "reduced")
      throw std::invalid_argument("TUTTI_TEST_GRID is '" + wanted + "', neither full nor reduced");
    return wanted == "reduced";
  }();
  return is;
}

/// The world sizes that a conformance run goes through, of those in `all`. Reduced, one of each kind is left: a rank
/// alone, a power of two, and the neighbours of another. Under a sanitizer there are at most five ranks: the threads of
/// more are on the same paths.
inline std::vector<int> world_sizes(std::vector<int> all = {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
  std::erase_if(all, [](int size) { return size > (slow || reduced() ? 5 : 9) || (reduced() && size == 4); });
  return all;
}

/// Returns one in how many of all reductions of all types a conformance run takes.
inline std::size_t reduction_stride(std::size_t full) { return reduced() ? 6 * full : full; }

/// Every third of `all`, in order, with the last: from a list that ends with the most, the most stays.
template <class T>
std::vector<T> every_third(const std::vector<T>& all) {
  std::vector<T> some;
  for (std::size_t i = (all.size() + 2) % 3; i < all.size(); i += 3) some.push_back(all[i]);
  return some;
}

/// What a test goes through: `all`, or `few` where it is slow.
template <class T>
std::vector<T> grid(std::vector<T> all, std::vector<T> few) {
  return slow ? few : all;
}

}  // namespace tutti_test
