#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/file.hpp"

namespace gpt {

/// The number of a character in the vocabulary, which the model reads and predicts.
using token = std::uint8_t;

/// A tokenizer, which numbers the bytes that occur in a text in ascending order.
class tokenizer {
 public:
  explicit tokenizer(std::string_view text) {
    std::array<bool, 256> seen{};
    for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
    for (std::size_t byte = 0; byte < seen.size(); ++byte) {
      if (!seen[byte]) continue;
      tokens_[byte] = static_cast<token>(characters_.size());
      characters_ += static_cast<char>(byte);
    }
  }

  std::size_t size() const { return characters_.size(); }
  char character(token t) const { return characters_[t]; }

  /// Returns the tokens of a text. Every character must occur in the text that the tokenizer was made of.
  std::vector<token> encode(std::string_view text) const {
    std::vector<token> tokens(text.size());
    std::ranges::transform(text, tokens.begin(), [&](char c) { return tokens_[static_cast<unsigned char>(c)]; });
    return tokens;
  }

 private:
  std::string characters_;
  std::array<token, 256> tokens_{};
};

/// Reads files and returns their concatenated contents. A folder stands for its files in the order of their names,
/// without links, which would repeat some. Errors: std::system_error or std::runtime_error with the path.
inline std::string read_text(std::span<const std::filesystem::path> paths) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 30;
  std::string text;
  const auto append = [&](const std::filesystem::path& file) {
    const auto bytes = common::read_file(file, largest);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const auto& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      append(path);
      continue;
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator{path})
      if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
    std::ranges::sort(files);
    std::ranges::for_each(files, append);
  }
  return text;
}

/// A text as tokens, for training, with its last tenth for evaluation only.
struct corpus {
  /// Tokenizes a text. Errors: std::runtime_error if a part is too short for one sequence of `context` tokens and the
  /// token after it.
  corpus(std::string_view text, std::size_t context) : alphabet{text}, tokens{alphabet.encode(text)} {
    if (tokens.size() / 10 <= context)
      throw std::runtime_error{"the text has " + std::to_string(tokens.size()) +
                               " characters; its last tenth is held out, and too short for --context " +
                               std::to_string(context)};
  }

  std::span<const token> train() const { return std::span{tokens}.first(tokens.size() - tokens.size() / 10); }
  std::span<const token> validation() const { return std::span{tokens}.last(tokens.size() / 10); }

  tokenizer alphabet;
  std::vector<token> tokens;
};

}  // namespace gpt
