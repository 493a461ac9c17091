#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/file.hpp"
#include "digits/dataset.hpp"

// IDX, the format of MNIST: a magic number with the type "bytes" and the number of dimensions, the dimensions as 32-bit
// big-endian numbers, and the values.

namespace digits {

namespace detail {

inline constexpr std::uintmax_t largest_idx = std::uintmax_t{1} << 32;
inline constexpr std::uint32_t images_magic = 0x0803;
inline constexpr std::uint32_t labels_magic = 0x0801;
inline constexpr std::size_t smallest_side = 2;
inline constexpr std::size_t largest_side = 1024;

class idx_file {
 public:
  idx_file(const std::filesystem::path& path, std::uint32_t magic)
      : path_{path}, bytes_{common::read_file(path, largest_idx)} {
    if (number(0) != magic) fail("it does not start with the bytes 0 0 8 " + std::to_string(magic & 0xff));
  }

  /// Returns the 32-bit number with this index in the header.
  std::size_t number(std::size_t index) const {
    if (bytes_.size() < 4 * (index + 1)) fail("it ends within its header");
    std::size_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::size_t>(bytes_[4 * index + i]);
    return value;
  }

  /// Returns the bytes after the header. Throws unless there are `count` of them.
  std::vector<std::uint8_t> values(std::size_t header_numbers, std::size_t count) const {
    const std::size_t header = 4 * header_numbers;
    if (bytes_.size() != header + count)
      fail("it has " + std::to_string(bytes_.size()) + " bytes, its header promises " + std::to_string(header + count));
    std::vector<std::uint8_t> result(count);
    std::ranges::transform(std::span{bytes_}.subspan(header), result.begin(), std::to_integer<std::uint8_t>);
    return result;
  }

  [[noreturn]] void fail(const std::string& why) const { throw std::runtime_error{path_.string() + ": " + why}; }

 private:
  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
};

inline dataset load_idx_pair(const std::filesystem::path& images_path, const std::filesystem::path& labels_path) {
  const idx_file images{images_path, images_magic};
  const idx_file labels{labels_path, labels_magic};
  const std::size_t count = images.number(1);
  dataset data{.shape = {images.number(2), images.number(3), 1}, .largest_pixel = 255, .pixels = {}, .labels = {}};
  for (const std::size_t side : {data.shape.rows, data.shape.columns})
    if (side < smallest_side || side > largest_side)
      images.fail("images of " + std::to_string(data.shape.rows) + " x " + std::to_string(data.shape.columns) +
                  " pixels, sides must be from " + std::to_string(smallest_side) + " to " +
                  std::to_string(largest_side));
  if (count == 0) images.fail("it holds no images");
  data.pixels = images.values(4, count * data.shape.size());
  if (labels.number(1) != count)
    labels.fail("it has " + std::to_string(labels.number(1)) + " labels, " + images_path.filename().string() + " has " +
                std::to_string(count) + " images");
  data.labels = labels.values(2, count);
  const auto bad = std::ranges::find_if(data.labels, [](std::uint8_t label) { return label >= class_count; });
  if (bad != data.labels.end())
    labels.fail("label " + std::to_string(bad - data.labels.begin() + 1) + " is " + std::to_string(*bad) +
                ", not from 0 to 9");
  return data;
}

inline std::filesystem::path idx_path(const std::filesystem::path& directory, const std::string& name) {
  auto packed = directory / name;
  packed += ".gz";
  if (!std::filesystem::exists(directory / name) && std::filesystem::exists(packed))
    throw std::runtime_error{packed.string() + " must be unpacked first: gunzip " + packed.string()};
  return directory / name;
}

}  // namespace detail

/// Reads MNIST, Fashion-MNIST or another data set from the same four files in a directory.
///
/// Errors: std::system_error or std::runtime_error with the file and the reason.
inline split_dataset load_idx(const std::filesystem::path& directory) {
  const auto path = [&](const std::string& name) { return detail::idx_path(directory, name); };
  split_dataset data{.train = detail::load_idx_pair(path("train-images-idx3-ubyte"), path("train-labels-idx1-ubyte")),
                     .test = detail::load_idx_pair(path("t10k-images-idx3-ubyte"), path("t10k-labels-idx1-ubyte"))};
  if (data.train.shape != data.test.shape)
    throw std::runtime_error{"the images for training and for testing in " + directory.string() + " differ in size"};
  return data;
}

}  // namespace digits
