#pragma once
#include <cstddef>

#include <tutti/algo/bring_all.hpp>
#include <tutti/algo/shm/external_segments.hpp>
#include <tutti/config.hpp>

namespace tutti::algo {

TUTTI_DECL void bring_all(const external_segments& d, const buffer& into) {
  detail::bring(d, 0, into.count, static_cast<std::byte*>(into.data), into.element_bytes,
                detail::stores_for(into.bytes()));
}

}  // namespace tutti::algo
