#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/grad/arena.hpp>

namespace tutti::grad {

TUTTI_DECL void arena::find_ranges(const own_memory& own) {
  for (std::size_t i = 0; i < size(); ++i) at_[i] = own.given() ? own.address(i) : memory_.data() + of(i).offset;
  for (std::size_t b = 0; b < layout().buckets.size(); ++b) {
    const bucket& k = layout().buckets[b];
    const bool is_own = own.given() && !k.slots.empty();
    std::byte* const begin = own.given() ? memory_.data() : memory_.data() + start_of(b);
    visit_gradient(k.type, [&]<class T>() {
      list<T>& all = std::get<list<T>>(ranges_);
      const std::size_t first = all.size();
      if (is_own)
        for (const auto& r : own.ranges_of(k)) all.push_back({reinterpret_cast<T*>(r.data), r.count});
      else if (k.count != 0)
        all.push_back({reinterpret_cast<T*>(begin), k.count});
      buckets_.push_back({first, all.size() - first, begin + k.count * (is_own ? 0 : sizeof(T))});
    });
  }
}

}  // namespace tutti::grad
