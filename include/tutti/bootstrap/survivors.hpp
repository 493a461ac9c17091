#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/store/concept.hpp>

namespace tutti {

namespace detail {

// Waits for one rank's key until the deadline. After that, get() on a store across a network cannot answer in time, so
// try_get() decides for the ranks that are left.
template <store S>
bool is_there(S& store, const std::string& key, deadline until) {
  try {
    if (clock::now() < until) {
      static_cast<void>(store.get(key, until));
      return true;
    }
  } catch (const error& e) {
    if (e.kind() != errc::timed_out) throw;
  }
  return store.try_get(key).has_value();
}

}  // namespace detail

/// Returns the ranks of a failed world of `size` that are still alive: an ascending list, equal on all of them, from
/// which they form a new world; a rank's new number is its index. Every survivor calls it once, with its rank `here` in
/// the failed world and the ranks that it knows to be `lost`, for which it does not wait. Blocks until all others have
/// come or until `until`; a rank that comes later gets an error.
///
/// `store` is one that outlives the ranks that may be lost, with no keys under "survivors/"; use a prefix_store
/// per failure. Errors: error{rendezvous} for a rank that the others have left out, and those of the store. Costs one
/// round trip per rank and one to decide: the first rank that has waited long enough proposes a list with compare_set.
template <store S>
[[nodiscard]] std::vector<int> agree_on_survivors(S& store, int here, int size, std::span<const int> lost,
                                                  deadline until) {
  if (size < 1 || here < 0 || here >= size)
    throw usage_error("survivors: rank " + std::to_string(here) + " is not in a world of " + std::to_string(size));
  const auto key = [](int r) { return "survivors/here/" + std::to_string(r); };
  const std::byte present{1};
  store.set(key(here), std::span{&present, 1});
  std::vector<std::uint32_t> found;
  for (int r = 0; r < size; ++r) {
    if (r != here && (std::ranges::find(lost, r) != lost.end() || !detail::is_there(store, key(r), until))) continue;
    found.push_back(static_cast<std::uint32_t>(r));
  }
  const auto verdict = store.compare_set("survivors/verdict", {}, std::as_bytes(std::span{found}));
  std::vector<int> all;
  for (std::size_t at = 0; at + 4 <= verdict.size(); at += 4) {
    std::uint32_t r = 0;
    std::memcpy(&r, verdict.data() + at, 4);
    if (r >= static_cast<std::uint32_t>(size) || (!all.empty() && static_cast<int>(r) <= all.back()))
      throw error{{errc::protocol}, "survivors: the list in the store is not one of ranks of this world", {here}};
    all.push_back(static_cast<int>(r));
  }
  if (std::ranges::find(all, here) == all.end())
    throw error{{errc::rendezvous, 0, here, 0},
                "survivors: the other ranks have gone on without this one (rank " + std::to_string(here) +
                    "), which came too late or was taken for lost; it must end",
                {here}};
  return all;
}

}  // namespace tutti
