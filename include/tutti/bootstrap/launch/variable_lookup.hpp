#pragma once
#include <concepts>
#include <optional>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti {

/// Lookup of environment variables: a callable that takes a name and returns the value, or nullopt if it is not set. A
/// view must be valid until the reading has ended.
template <class Get>
concept variable_lookup = requires(const Get& get, std::string_view name) {
  { get(name) } -> std::same_as<std::optional<std::string_view>>;
};

}  // namespace tutti
