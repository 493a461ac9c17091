#include "gpt/text.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/temporary_directory.hpp"
#include "gpt/options.hpp"

namespace {

std::string error_in(const std::vector<const char*>& arguments) {
  return error_of([&] { gpt::parse_options(arguments); });
}

}  // namespace

TEST_CASE("gpt text: tokens are the bytes that occur, and come back as they were") {
  const std::string text = "to be\n\xff";
  const gpt::tokenizer alphabet{text};
  CHECK(alphabet.size() == 7);
  const auto tokens = alphabet.encode(text);
  CHECK(tokens.front() == 5);  // \n, space, b, e, o, t
  std::string again;
  for (const auto t : tokens) again += alphabet.character(t);
  CHECK(again == text);
}

TEST_CASE("gpt text: files one behind the other; of a folder, each file once, by name") {
  const temporary_directory folder;
  folder.write("b", "two");
  folder.write("a", "one");
  std::filesystem::create_symlink("a", folder.path() / "c");
  std::filesystem::create_directory(folder.path() / "d");
  const std::vector<std::filesystem::path> paths{folder.path() / "b", folder.path()};
  CHECK(gpt::read_text(paths) == "twoonetwo");
  const std::vector<std::filesystem::path> missing{folder.path() / "nothing"};
  CHECK(contains(error_of([&] { gpt::read_text(missing); }), (folder.path() / "nothing").string()));
}

TEST_CASE("gpt text: the last tenth is held out, and must be long enough") {
  const std::string text(70, 'x');
  const gpt::corpus some{text, 6};
  CHECK(some.train().size() == 63);
  CHECK(some.validation().size() == 7);
  CHECK(error_of([&] { gpt::corpus(text, 7); }) ==
        "the text has 70 characters; its last tenth is held out, and too short for --context 7");
}

TEST_CASE("gpt options: what is read, and what is refused") {
  const std::vector<const char*> arguments{"--text", "a", "--text=b", "--width", "48", "--heads", "3", "--lr", "1e-2"};
  const auto found = gpt::parse_options(arguments);
  CHECK(found.text == std::vector<std::filesystem::path>{"a", "b"});
  CHECK(found.width == 48);
  CHECK(found.learning_rate == 0.01);
  CHECK(gpt::parse_options({}).text.size() == 1);
  CHECK(error_in({"--width", "50"}) == "--width: 50 is not a multiple of --heads 4");
  CHECK(contains(error_in({"--heads", "0"}), "--heads: 0 is not"));
  for (const char* each : {"--steps", "--batch", "--layers", "--context", "--seed", "--sample", "--validate"})
    CHECK(contains(gpt::usage(), each));
}
