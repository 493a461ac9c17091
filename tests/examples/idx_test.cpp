#include "digits/idx.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "digits/load.hpp"
#include "examples/temporary_directory.hpp"

namespace {

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns, std::size_t bytes) {
  std::string file = big_endian(0x0803) + big_endian(count) + big_endian(rows) + big_endian(columns);
  for (std::size_t i = 0; i < bytes; ++i) file += static_cast<char>(i + 250);
  return file;
}

std::string labels(std::uint32_t count, const std::string& values) {
  return big_endian(0x0801) + big_endian(count) + values;
}

// Two images of 2 x 3 pixels for training, one for testing.
struct small_idx {
  std::string train_images = images(2, 2, 3, 12);
  std::string train_labels = labels(2, {7, 9});
  std::string test_images = images(1, 2, 3, 6);
  std::string test_labels = labels(1, {3});

  void write(const temporary_directory& directory) const {
    directory.write("train-images-idx3-ubyte", train_images);
    directory.write("train-labels-idx1-ubyte", train_labels);
    directory.write("t10k-images-idx3-ubyte", test_images);
    directory.write("t10k-labels-idx1-ubyte", test_labels);
  }

  std::string error() const {
    const temporary_directory directory;
    write(directory);
    return error_of([&] { digits::load_dataset(directory.path()); });
  }
};

}  // namespace

TEST_CASE("digits idx: the four files of MNIST are read") {
  const temporary_directory directory;
  small_idx{}.write(directory);
  const auto data = digits::load_dataset(directory.path());
  CHECK(data.train.shape == digits::image_shape{2, 3, 1});
  CHECK(data.train.largest_pixel == 255);
  CHECK(data.train.pixels == std::vector<std::uint8_t>{250, 251, 252, 253, 254, 255, 0, 1, 2, 3, 4, 5});
  CHECK(data.train.labels == std::vector<std::uint8_t>{7, 9});
  CHECK(data.test.size() == 1);
  CHECK(data.test.labels == std::vector<std::uint8_t>{3});
}

TEST_CASE("digits idx: a broken file is named, and what is wrong with it") {
  small_idx files;
  SUBCASE("labels where images should be") {
    files.train_images = files.train_labels;
    CHECK(contains(files.error(), "train-images-idx3-ubyte: it does not start with the bytes 0 0 8 3"));
  }
  SUBCASE("images where labels should be") {
    files.test_labels = files.test_images;
    CHECK(contains(files.error(), "t10k-labels-idx1-ubyte: it does not start with the bytes 0 0 8 1"));
  }
  SUBCASE("something else") {
    files.train_images = "P5 28 28 255 and so on";
    CHECK(contains(files.error(), "train-images-idx3-ubyte: it does not start with"));
  }
  SUBCASE("bytes too many") {
    files.train_images += '\0';
    CHECK(contains(files.error(), "train-images-idx3-ubyte: it has 29 bytes, its header promises 28"));
  }
  SUBCASE("a count that nothing could hold") {
    files.train_images = images(0xffffffff, 1024, 1024, 12);
    CHECK(contains(files.error(), "train-images-idx3-ubyte: it has 28 bytes, its header promises"));
  }
  SUBCASE("sides that would overflow") {
    files.train_images = images(2, 0xffffffff, 0xffffffff, 12);
    CHECK(contains(files.error(), "train-images-idx3-ubyte: images of 4294967295 x 4294967295"));
  }
  SUBCASE("images without rows") {
    files.train_images = images(2, 0, 3, 0);
    CHECK(contains(files.error(), "train-images-idx3-ubyte: images of 0 x 3 pixels"));
  }
  SUBCASE("no images") {
    files.train_images = images(0, 2, 3, 0);
    CHECK(contains(files.error(), "train-images-idx3-ubyte: it holds no images"));
  }
  SUBCASE("fewer labels than images") {
    files.train_labels = labels(1, {7});
    CHECK(contains(files.error(), "train-labels-idx1-ubyte: it has 1 labels, train-images-idx3-ubyte has 2 images"));
  }
  SUBCASE("a label past 9") {
    files.train_labels = labels(2, {7, 10});
    CHECK(contains(files.error(), "train-labels-idx1-ubyte: label 2 is 10, not from 0 to 9"));
  }
  SUBCASE("images of two sizes") {
    files.test_images = images(1, 3, 2, 6);
    CHECK(contains(files.error(), "differ in size"));
  }
}

TEST_CASE("digits idx: a file that ends at any byte is refused") {
  const small_idx whole;
  for (std::size_t length = 0; length < whole.train_images.size(); ++length) {
    small_idx files = whole;
    files.train_images.resize(length);
    CHECK(contains(files.error(), "train-images-idx3-ubyte: it "));
  }
  for (std::size_t length = 0; length < whole.test_labels.size(); ++length) {
    small_idx files = whole;
    files.test_labels.resize(length);
    CHECK(contains(files.error(), "t10k-labels-idx1-ubyte: it "));
  }
}

TEST_CASE("digits idx: a file that is missing or still packed") {
  const temporary_directory directory;
  CHECK(contains(error_of([&] { digits::load_dataset(directory.path()); }), "train-images-idx3-ubyte: No such file"));
  directory.write("train-images-idx3-ubyte.gz", "packed");
  CHECK(contains(error_of([&] { digits::load_dataset(directory.path()); }), "must be unpacked first: gunzip"));
}
