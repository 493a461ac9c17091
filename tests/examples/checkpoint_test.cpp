#include "digits/checkpoint.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "examples/temporary_directory.hpp"

namespace {

struct two_tensors {
  std::vector<float> weight;
  std::vector<float> bias;

  std::vector<digits::named_span<float>> views() { return {{"weight", weight}, {"bias", bias}}; }
  friend bool operator==(const two_tensors&, const two_tensors&) = default;
};

const two_tensors written{{1.5f, -2.0f, 3.0f}, {0.25f}};
const two_tensors other{{9, 9, 9}, {9}};

void save(const std::filesystem::path& path, two_tensors tensors, std::uint64_t epochs_done = 7) {
  const auto views = tensors.views();
  digits::save_checkpoint<float>(path, epochs_done, views);
}

std::uint64_t load(const std::filesystem::path& path, two_tensors& tensors) {
  const auto views = tensors.views();
  return digits::load_checkpoint<float>(path, views);
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

std::size_t files_in(const std::filesystem::path& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{directory}, {}));
}

}  // namespace

TEST_CASE("digits checkpoint: what was saved is loaded, and saving again replaces it") {
  const temporary_directory directory;
  const auto path = directory.path() / "model";
  save(path, other, 1);
  save(path, written);
  two_tensors read = other;
  CHECK(load(path, read) == 7);
  CHECK(read == written);
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("digits checkpoint: a relative path without a directory works") {
  const temporary_directory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  const auto complaint = error_of([] { save("model", written); });
  std::filesystem::current_path(before);
  CHECK(complaint == "nothing was thrown");
  CHECK(std::filesystem::exists(directory.path() / "model"));
}

TEST_CASE("digits checkpoint: cut off at any byte it is refused, and nothing is changed") {
  const temporary_directory directory;
  const auto path = directory.path() / "model";
  save(path, written);
  const std::string whole = content_of(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto cut = directory.write("cut", whole.substr(0, length));
    two_tensors read = other;
    CHECK(contains(error_of([&] { load(cut, read); }), "cut: it "));
    CHECK(read == other);
  }
  two_tensors read = other;
  const auto longer = directory.write("longer", whole + "x");
  CHECK(contains(error_of([&] { load(longer, read); }), "checksum does not match"));
}

TEST_CASE("digits checkpoint: a flipped bit in any byte is found, and nothing is changed") {
  const temporary_directory directory;
  const auto path = directory.path() / "model";
  save(path, written);
  const std::string whole = content_of(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const auto flipped = directory.write("flipped", damaged);
    two_tensors read = other;
    CHECK(contains(error_of([&] { load(flipped, read); }), "cannot use the checkpoint"));
    CHECK(read == other);
  }
}

TEST_CASE("digits checkpoint: a sound file of another model says in what it differs") {
  const temporary_directory directory;
  const auto path = directory.path() / "model";
  save(path, written);
  two_tensors larger{{1, 2, 3, 4}, {5}};
  CHECK(contains(error_of([&] { load(path, larger); }), "its number of elements of weight is 3 where 4 is expected"));
  std::vector<double> wide(3);
  const std::vector<digits::named_span<double>> doubles{{"weight", wide}};
  CHECK(contains(error_of([&] { digits::load_checkpoint<double>(path, doubles); }),
                 "its number of bytes of an element is 4 where 8 is expected"));
  std::vector<float> values(3);
  const std::vector<digits::named_span<float>> one{{"weight", values}};
  CHECK(contains(error_of([&] { digits::load_checkpoint<float>(path, one); }),
                 "its number of tensors is 2 where 1 is expected"));
  const std::vector<digits::named_span<float>> renamed{{"height", values}, {"bias", values}};
  CHECK(contains(error_of([&] { digits::load_checkpoint<float>(path, renamed); }),
                 "it holds weight where height is expected"));
}

TEST_CASE("digits checkpoint: foreign and missing files, and places that cannot be written") {
  const temporary_directory directory;
  two_tensors read = other;
  const auto text = directory.write("notes.txt", "these are notes about something, not a checkpoint");
  CHECK(contains(error_of([&] { load(text, read); }), "notes.txt: it is not a checkpoint of this program"));
  CHECK(contains(error_of([&] { load(directory.path() / "none", read); }), "none: No such file"));
  CHECK(contains(error_of([&] { save(directory.path() / "none" / "model", written); }), "cannot write"));
  // A directory in the way: the temporary file must not stay behind.
  std::filesystem::create_directories(directory.path() / "taken" / "inside");
  CHECK(contains(error_of([&] { save(directory.path() / "taken", written); }), "cannot write"));
  CHECK(files_in(directory.path()) == 2);
}

TEST_CASE("digits hash: the published values of FNV-1a") {
  const auto hash = [](std::string_view text) { return common::fnv1a(std::as_bytes(std::span{text})); };
  CHECK(hash("") == 0xcbf29ce484222325u);
  CHECK(hash("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash("foobar") == 0x85944171f73967e8u);
}
