#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/tuning_file.hpp>
#include <tutti/core/error.hpp>

namespace {

using tutti::algorithm;
using tutti::algo::connectivity;
using tutti::algo::tuning;
using tutti::detail::load_tuning;
using tutti::detail::parse_tuning;

std::string complaint(std::string_view text) {
  try {
    (void)parse_tuning(text, "table");
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
  return "none";
}

TEST_CASE("tuning_file: rules, comments and blank lines") {
  const tuning t = parse_tuning(
      "# measured\n\ntutti tuning 1\nall_reduce messages 2 32768 recursive_doubling # small\r\n"
      "\tbroadcast  memory * * direct",
      "table");
  REQUIRE(t.size() == 2);
  CHECK(t[0] ==
        tuning::rule{tuning::id_of("all_reduce"), connectivity::messages, algorithm::recursive_doubling, 2, 32768});
  CHECK(t[1] == tuning::rule{tuning::id_of("broadcast"), connectivity::memory, algorithm::direct});
  CHECK(parse_tuning("tutti tuning 1", "table").size() == 0);
}

TEST_CASE("tuning_file: what is wrong is said with its line") {
  const std::string help = "; tutti-bench --tune FILE writes such tables", head = "tutti tuning 1\n";
  CHECK(complaint("") == "table, line 1: a table begins with \"tutti tuning 1\", and this one is empty" + help);
  CHECK(complaint("\nall_reduce") == "table, line 2: a table begins with \"tutti tuning 1\"" + help);
  CHECK(complaint("tutti tuning 2") == "table, line 1: a table begins with \"tutti tuning 1\"" + help);
  const std::string words = "a rule is five words: collective, links, ranks, bytes and algorithm";
  CHECK(complaint(head + "all_reduce messages 2 ring") == "table, line 2: " + words + help);
  CHECK(complaint(head + "# x\nall_reduce messages 2 3 ring tree") == "table, line 3: " + words + help);
  CHECK(complaint(head + "barrier messages 2 3 ring") ==
        "table, line 2: \"barrier\" is no collective that can be tuned" + help);
  CHECK(complaint(head + "all_reduce wires 2 3 ring") ==
        "table, line 2: \"wires\" is not memory, messages or machines" + help);
  CHECK(complaint(head + "all_reduce messages -2 3 ring") ==
        "table, line 2: \"-2\" is not a number of ranks, nor *" + help);
  CHECK(complaint(head + "all_reduce messages 0 3 ring") ==
        "table, line 2: a rule for worlds of up to 0 ranks fits none" + help);
  CHECK(complaint(head + "all_reduce messages 2 99999999999999999999 ring") ==
        "table, line 2: \"99999999999999999999\" is not a number of bytes, nor *" + help);
  CHECK(complaint(head + "all_reduce messages 2 3 tree") ==
        "table, line 2: all_reduce has no algorithm \"tree\"" + help);
  CHECK(complaint(head + "all_reduce messages 2 3 unknown") ==
        "table, line 2: all_reduce has no algorithm \"unknown\"" + help);
  std::string many = head;
  for (std::size_t i = 0; i <= tuning::most_rules; ++i) many += "all_reduce memory * * ring\n";
  CHECK(complaint(many) == "table, line 130: more than 128 rules" + help);
}

TEST_CASE("tuning_file: options go before the environment, and a file that is not there is an error") {
  const auto nothing = [](std::string_view) { return std::optional<std::string_view>{}; };
  const auto somewhere = [](std::string_view name) {
    return name == "TUTTI_TUNING" ? std::optional<std::string_view>{"/nowhere/at all"} : std::nullopt;
  };
  CHECK(load_tuning({}, nothing).size() == 0);
  CHECK_THROWS_WITH_AS((void)load_tuning({}, somewhere),
                       "TUTTI_TUNING \"/nowhere/at all\" cannot be read: name a file that this rank can open, or "
                       "leave it out",
                       tutti::usage_error);
  tutti::init_options o;
  o.tuning = "/dev/null";
  CHECK_THROWS_WITH_AS((void)load_tuning(o, somewhere),
                       "init_options::tuning \"/dev/null\", line 1: a table begins with \"tutti tuning 1\", and this "
                       "one is empty; tutti-bench --tune FILE writes such tables",
                       tutti::usage_error);
}

}  // namespace
