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
#include <tutti/grad/agreement.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// Gives every rank the root's parameters, or its buffers, in place, so that all begin alike. `tensors` is a range of
/// spans of one type of numbers. Collective, and ends when it is done. Small tensors travel together and large ones in
/// pieces, at most `chunk_bytes` at a time, which bounds the memory taken.
/// Errors: error{mismatch} on all ranks where the tensors differ, with the first one that does and two ranks;
/// usage_error for a root that is none, and for chunks of no bytes.
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
  std::vector<std::span<T>> parts;  // of what is packed
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
