#pragma once
#include <string>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/grad/plan.hpp>

namespace common {

/// Returns the shapes of a model's gradients, of type T, for a reducer.
template <class T, class Model>
std::vector<tutti::grad::parameter_shape> gradient_shapes(const Model& net) {
  std::vector<tutti::grad::parameter_shape> all;
  for (const auto& tensor : net.tensors())
    all.push_back({std::string{tensor.name}, tensor.count, tutti::dtype_of<T>()});
  return all;
}

}  // namespace common
