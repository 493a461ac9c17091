#include "digits/digits_csv.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "digits/load.hpp"
#include "examples/temporary_directory.hpp"

namespace {

// 64 pixels, each followed by a comma.
std::string pixels(const std::string& value = "1") {
  std::string line;
  for (int i = 0; i < 64; ++i) line += value + ",";
  return line;
}

std::string error_in(const std::string& content) {
  const temporary_directory directory;
  const auto path = directory.write("some.csv", content);
  return error_of([&] { digits::load_digits_csv(path); });
}

}  // namespace

TEST_CASE("digits csv: pixels and labels arrive in order") {
  const temporary_directory directory;
  const std::string first = "16,0," + pixels().substr(4) + "9\n";
  for (const char* ending : {"\n", "\r\n", ""}) {
    const auto data = digits::load_digits_csv(directory.write("ok.csv", first + pixels("2") + "0" + ending));
    CHECK(data.shape == digits::image_shape{8, 8, 1});
    CHECK(data.largest_pixel == 16);
    CHECK(data.size() == 2);
    CHECK(data.pixels.size() == 128);
    CHECK(data.pixels[0] == 16);
    CHECK(data.pixels[1] == 0);
    CHECK(data.pixels[63] == 1);
    CHECK(data.pixels[64] == 2);
    CHECK(data.labels == std::vector<std::uint8_t>{9, 0});
  }
}

TEST_CASE("digits csv: what is wrong is named with file, line and column") {
  const std::string good = pixels() + "3\n";
  CHECK(contains(error_in(good + "1,17," + pixels()), "some.csv:2:3: expected pixel 2, an integer from 0 to 16"));
  CHECK(contains(error_in("x" + good), "some.csv:1:1: expected pixel 1,"));
  CHECK(contains(error_in("-1,2\n"), "some.csv:1:1: expected pixel 1,"));
  CHECK(contains(error_in("1,,2\n"), "some.csv:1:3: expected pixel 2,"));
  CHECK(contains(error_in("1, 2\n"), "some.csv:1:3: expected pixel 2,"));
  CHECK(contains(error_in("99999999999999999999,2\n"), "some.csv:1:1: expected pixel 1,"));
  CHECK(contains(error_in("1;2\n"), "some.csv:1:2: expected a comma after pixel 1"));
  CHECK(contains(error_in("1,2"), "some.csv:1:4: expected a comma after pixel 2"));
  CHECK(contains(error_in("1.5,2\n"), "some.csv:1:2: expected a comma after pixel 1"));
  CHECK(contains(error_in(pixels() + "10\n"), "some.csv:1:129: expected the label, an integer from 0 to 9"));
  CHECK(contains(error_in(pixels() + "\n"), "some.csv:1:129: expected the label"));
  CHECK(contains(error_in(pixels() + "3,\n"), "some.csv:1:130: expected the end of the line"));
  CHECK(contains(error_in(good + "\n" + good), "some.csv:2:1: expected pixel 1,"));
  CHECK(contains(error_in(""), "some.csv:1:1: expected a line for each image"));
  CHECK(contains(error_of([] { digits::load_digits_csv("/nonexistent/x.csv"); }), "cannot read /nonexistent/x.csv"));
}

TEST_CASE("digits csv: every prefix of a file loads whole lines or says where it ends") {
  const std::string content = pixels("12") + "3\n" + pixels("1") + "7\n";
  const temporary_directory directory;
  for (std::size_t length = 0; length <= content.size(); ++length) {
    const auto path = directory.write("cut.csv", content.substr(0, length));
    const auto complaint = error_of([&] { digits::load_digits_csv(path); });
    const bool whole = length >= content.size() - 1 || length == content.find('\n') || length == content.find('\n') + 1;
    CHECK(contains(complaint, whole ? "nothing was thrown" : "cut.csv:"));
  }
}

TEST_CASE("digits csv: the bundled digits are complete, and the same fifth is always held out") {
  const auto data = digits::load_dataset({});
  CHECK(data.train.size() == 1437);
  CHECK(data.test.size() == 360);
  CHECK(data.train.pixels.size() == 1437 * 64);
  CHECK(data.test.pixels.size() == 360 * 64);
  CHECK(data.test.pixels == digits::load_dataset(digits::bundled_digits()).test.pixels);
  // As many of each label as the file has.
  std::vector<int> counts(10);
  for (const auto* part : {&data.train, &data.test})
    for (const auto label : part->labels) ++counts[label];
  CHECK(counts == std::vector<int>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180});
}
