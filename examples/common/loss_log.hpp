#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <ostream>
#include <stdexcept>

namespace common {

/// A file with a line for each step: its number and its loss, to the last bit. Writes nothing without a path. Errors:
/// std::runtime_error with the name of the file.
class loss_log {
 public:
  void open(const std::filesystem::path& path, std::ios::openmode mode = std::ios::trunc) {
    if (path.empty()) return;
    path_ = path;
    file_.open(path, mode);
    file_.precision(17);
    check();
  }

  void write(std::size_t step, double loss) {
    if (path_.empty()) return;
    file_ << step << ' ' << loss << std::endl;
    check();
  }

 private:
  void check() const {
    if (!file_) throw std::runtime_error{"cannot write " + path_.string()};
  }

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace common
