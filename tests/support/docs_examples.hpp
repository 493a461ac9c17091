#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

// Examples of the docs: each block of code of a page stands in a test that compiles and runs it.

namespace docs_examples {

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline std::string without_space(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

/// Without comments, too: a page may explain what its test need not.
inline std::string bare(std::string text) {
  for (std::size_t at; (at = text.find("//")) != std::string::npos;) text.erase(at, text.find('\n', at) - at);
  return without_space(std::move(text));
}

/// The blocks of C++ of a page.
inline std::vector<std::string> of(const std::filesystem::path& page) {
  const std::string text = text_of(page);
  std::vector<std::string> all;
  for (std::size_t at = text.find("```cpp\n"); at != std::string::npos; at = text.find("```cpp\n", at + 1))
    all.push_back(text.substr(at + 7, text.find("```", at + 7) - at - 7));
  return all;
}

}  // namespace docs_examples
