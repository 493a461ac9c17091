#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace common {

/// Reads a whole file. Errors: std::system_error or std::runtime_error if it cannot be read or has more than `largest`
/// bytes, which is checked before memory is allocated.
inline std::vector<std::byte> read_file(const std::filesystem::path& path, std::uintmax_t largest) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) throw std::system_error{failure, "cannot read " + path.string()};
  if (size > largest)
    throw std::runtime_error{path.string() + " has " + std::to_string(size) + " bytes, more than the " +
                             std::to_string(largest) + " that are possible"};
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  std::ifstream file{path, std::ios::binary};
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error{"cannot read " + path.string()};
  return bytes;
}

}  // namespace common
