#pragma once
#include <concepts>
#include <optional>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti {

/// Looks up environment variables: any callable that takes a name and returns the value, or nullopt when it is not set.
/// A view must live until the reading is over.
template <class Get>
concept variable_lookup = requires(const Get& get, std::string_view name) {
  { get(name) } -> std::same_as<std::optional<std::string_view>>;
};

}  // namespace tutti
