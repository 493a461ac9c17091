#include <doctest/doctest.h>

#include <chrono>
#include <source_location>
#include <string>
#include <tutti/core/text.hpp>

using namespace std::chrono_literals;

TEST_CASE("text: what came from outside is shown in one line, in quotes, and not too long") {
  using tutti::detail::quoted;
  CHECK(quoted("") == "\"\"");
  CHECK(quoted("gr\xc3\xbc\xc3\x9f ~") == "\"gr\xc3\xbc\xc3\x9f ~\"");
  CHECK(quoted(std::string("a\n\x1b[\x7f\0b", 7)) == "\"a??[??b\"");
  CHECK(quoted(std::string(96, 'x')) == '"' + std::string(96, 'x') + '"');
  CHECK(quoted(std::string(97, 'x')) == '"' + std::string(96, 'x') + "...\"");
}

TEST_CASE("text: a part of a name keeps plain characters, and tells all other texts apart by their hash") {
  using tutti::detail::name_part;
  CHECK(name_part("train-7.a_B@c:d+e") == "train-7.a_B@c:d+e");
  CHECK(name_part("").empty());
  CHECK(name_part("a/b").starts_with("a_b-"));
  CHECK(name_part("a/b") != name_part("a b"));
  CHECK(name_part(std::string(64, 'x')) == std::string(64, 'x'));
  CHECK(name_part(std::string(65, 'x')).size() < 90);
  CHECK(name_part(std::string(65, 'x')) != name_part(std::string(66, 'x')));
}

TEST_CASE("text: durations are cut, not rounded, and say no more than a tenth of a second") {
  using tutti::detail::in_seconds;
  CHECK(in_seconds(0s) == "0 ms");
  CHECK(in_seconds(999'999us) == "999 ms");
  CHECK(in_seconds(1s) == "1 s");
  CHECK(in_seconds(1099ms) == "1 s");
  CHECK(in_seconds(1999ms) == "1.9 s");
  CHECK(in_seconds(31s) == "31 s");
}

TEST_CASE("text: a place in a source is its file's name without folders, and its line") {
  const auto here = std::source_location::current();
  CHECK(tutti::detail::file_and_line(here) == "text_test.cpp:" + std::to_string(here.line()));
}
