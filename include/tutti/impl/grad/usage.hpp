#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/pass/usage.hpp>

namespace tutti::grad {

TUTTI_DECL void usage::restore(const arena& memory) const {
  for (const auto& [i, at] : kept_) {
    if (anyone_[i]) continue;
    const dtype type = memory.layout().buckets[memory.bucket_of(i)].type;
    visit_gradient(type, [&]<class T>() {
      const auto gradient = std::as_writable_bytes(memory.gradient<T>(i));
      std::copy_n(bytes_.data() + at, gradient.size(), gradient.data());
    });
  }
}

}  // namespace tutti::grad
