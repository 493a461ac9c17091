#pragma once

#include <filesystem>
#include <source_location>

#include "digits/dataset.hpp"
#include "digits/digits_csv.hpp"
#include "digits/idx.hpp"

namespace digits {

/// Returns the path of the digits that come with the source code of this program.
inline std::filesystem::path bundled_digits() {
  const std::filesystem::path here{std::source_location::current().file_name()};
  return here.parent_path().parent_path() / "data" / "digits.csv";
}

/// Loads the data set of `--data`: a directory with the IDX files of MNIST, or a csv file of digits; an empty path
/// means the bundled digits.
inline split_dataset load_dataset(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return load_idx(path);
  return hold_out_fifth(load_digits_csv(path.empty() ? bundled_digits() : path));
}

}  // namespace digits
