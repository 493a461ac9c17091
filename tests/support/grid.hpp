#pragma once
#include <cstddef>
#include <vector>

#include <tutti/config.hpp>

namespace tutti_test {

/// Under a sanitizer a test takes ten to twenty times as long, and what is wrong shows in any case of the path it is
/// on: there each path is taken once, not with every count and number of ranks.
inline constexpr bool slow = tutti::detail::thread_sanitizer || tutti::detail::address_sanitizer;

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
