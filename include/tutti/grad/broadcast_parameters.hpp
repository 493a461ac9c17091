#pragma once
#include <algorithm>
#include <cstddef>
#include <ranges>
#include <source_location>
#include <span>
#include <type_traits>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// Gives every rank the root's parameters, or its buffers, in place, so that all ranks begin with the same model.
/// `tensors` is a range of spans of one number type. Collective; blocks until done. Small tensors are packed together
/// and large ones are cut, so that one broadcast carries at most `chunk_bytes`, which also bounds the memory that this
/// takes. Errors: error{mismatch} on all ranks if the tensors differ, with the first one that does and two ranks;
/// usage_error for a root that is not a rank, and for chunk_bytes == 0.
template <class Comm, std::ranges::forward_range R>
  requires number<typename std::ranges::range_value_t<R>::element_type>
void broadcast_parameters(Comm& world, R&& tensors, int root = 0, std::size_t chunk_bytes = std::size_t{1} << 20,
                          std::source_location where = std::source_location::current()) {
  using T = typename std::ranges::range_value_t<R>::element_type;
  if (chunk_bytes == 0) throw usage_error("broadcast_parameters: chunks of 0 bytes; give chunk_bytes at least 1");
  std::vector<parameter_shape> shapes;
  for (const auto& t : tensors) shapes.push_back({"", t.size(), dtype_of<T>()});
  detail::check_agreement(world, "broadcast_parameters", shapes, make_plan(shapes).id(), where);

  const std::size_t most = std::max<std::size_t>(1, chunk_bytes / sizeof(T));
  std::vector<T> packed;
  std::vector<std::span<T>> parts;  // the destinations of `packed`
  const auto flush = [&] {
    if (packed.empty()) return;
    world.broadcast(packed, root, {}, where).wait();
    const T* from = packed.data();
    for (const auto part : parts) {
      std::copy_n(from, part.size(), part.data());
      from += part.size();
    }
    packed.clear();
    parts.clear();
  };
  for (const auto& t : tensors)
    for (std::span<T> rest{t}; !rest.empty();) {
      const auto part = rest.first((std::min)(rest.size(), most));
      rest = rest.subspan(part.size());
      if (packed.size() + part.size() > most) flush();
      if (part.size() == most) {  // a whole chunk needs no copy
        world.broadcast(part, root, {}, where).wait();
        continue;
      }
      packed.insert(packed.end(), part.begin(), part.end());
      parts.push_back(part);
    }
  flush();
}

}  // namespace tutti::grad
