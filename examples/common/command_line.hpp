#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace common {

/// An option of the command line.
struct option {
  std::string_view name;
  std::string_view value;  // name of its value in the help; empty: a flag
  std::string_view help;
  std::function<void(std::string_view)> apply;  // throws std::invalid_argument
};

/// Returns an `option::apply` that stores a number, which must be at least `least`.
template <class Number>
auto number_into(Number& target, Number least) {
  return [&target, least](std::string_view text) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), target);
    // Written as a negation, so that it also refuses NaN.
    if (failure != std::errc{} || end != text.data() + text.size() || !(target >= least))
      throw std::invalid_argument{"is not a number that is possible here"};
  };
}

/// Returns an `option::apply` that stores a path, which need not exist.
inline auto path_into(std::filesystem::path& target) {
  return [&target](std::string_view text) { target = text; };
}

/// Returns the lines of `--help`, one for each option.
inline std::string usage(std::span<const option> table) {
  std::string text;
  for (const auto& known : table) {
    std::string left = "  " + std::string{known.name} + " " + std::string{known.value};
    left.resize(22, ' ');
    text += left + std::string{known.help} + "\n";
  }
  return text;
}

/// Applies the arguments `--name value` and `--name=value`. Errors: std::invalid_argument with the argument.
inline void parse(std::span<const option> table, std::span<const char* const> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument{arguments[i]};
    const std::string_view name = argument.substr(0, argument.find('='));
    const auto found = std::ranges::find(table, name, &option::name);
    if (found == table.end()) throw std::invalid_argument{std::string{argument} + " is not an option; see --help"};
    std::string_view value;
    if (name.size() < argument.size()) {
      value = argument.substr(name.size() + 1);
    } else if (!found->value.empty()) {
      if (++i == arguments.size()) throw std::invalid_argument{std::string{name} + " needs a value"};
      value = arguments[i];
    }
    if (value.empty() != found->value.empty())
      throw std::invalid_argument{std::string{name} + (value.empty() ? " needs a value" : " takes no value")};
    try {
      found->apply(value);
    } catch (const std::invalid_argument& failure) {
      throw std::invalid_argument{std::string{name} + ": " + std::string{value} + " " + failure.what()};
    }
  }
}

}  // namespace common
