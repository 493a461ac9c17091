#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

// A directory for one test, gone with everything in it at the end.
class temporary_directory {
 public:
  temporary_directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-examples-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"cannot make a directory like " + pattern};
    path_ = pattern;
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  ~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream{path_ / name, std::ios::binary} << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// What an exception says, or "nothing was thrown".
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
