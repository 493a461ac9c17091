#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/wire/pending_places.hpp>

namespace tutti::detail {

/// Connections at a host that have not proved themselves yet. To make room, none that has shown an early proof is
/// closed while there is one that has not.
class pending_connections {
 public:
  struct entry {
    std::uint64_t id = 0;  ///< ascending by age
    std::uint64_t source = 0;
    deadline expires{};
  };

  [[nodiscard]] std::size_t size() const noexcept { return unproved_.size() + candidates_.size(); }

  void add(const entry& e) { unproved_.push_back(e); }
  /// Notes that a connection has shown an early proof.
  void prefer(std::uint64_t id) {
    const auto at = find(unproved_, id);
    if (at == unproved_.end() || at->id != id) return;
    candidates_.insert(find(candidates_, id), *at);
    unproved_.erase(at);
  }
  void remove(std::uint64_t id) noexcept {
    for (auto* list : {&unproved_, &candidates_})
      if (const auto at = find(*list, id); at != list->end() && at->id == id) list->erase(at);
  }

  /// Returns the oldest of those that are closed first, if there is any.
  [[nodiscard]] const entry* oldest() const noexcept { return size() == 0 ? nullptr : &first_to_go().front(); }
  /// Returns the oldest of them from the address of most. There must be one.
  [[nodiscard]] const entry& oldest_of_busiest() const noexcept {
    const auto& list = first_to_go();
    const auto busiest = wire::busiest_source(list);
    return *std::find_if(list.begin(), list.end(), [&](const entry& e) { return !busiest || e.source == *busiest; });
  }
  /// Returns the oldest of all, if there is any.
  [[nodiscard]] const entry* first() const noexcept {
    if (candidates_.empty() || unproved_.empty()) return oldest();
    return &(unproved_.front().id < candidates_.front().id ? unproved_ : candidates_).front();
  }

 private:
  using entries = std::vector<entry>;
  static entries::iterator find(entries& in, std::uint64_t id) noexcept {
    return std::lower_bound(in.begin(), in.end(), id, [](const entry& e, std::uint64_t i) { return e.id < i; });
  }
  [[nodiscard]] const entries& first_to_go() const noexcept { return unproved_.empty() ? candidates_ : unproved_; }

  entries unproved_, candidates_;  // without and with an early proof, by age
};

}  // namespace tutti::detail
