#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "process/trainer.hpp"
#include "support/temporary_directory.hpp"

/// The digits trainer as a user runs it: data-parallel training must be the training of one process.
namespace {

using tutti_test::largest_difference;
using run = tutti_test::trainer_run;

run train(const std::filesystem::path& folder, int ranks, const std::vector<std::string>& options) {
  return tutti_test::train("digits", folder, ranks, options);
}

}  // namespace

TEST_CASE("digits: 4 ranks with 16 images each follow the loss of 1 rank with 64, in float64 to 1e-9 over the run") {
  const tutti_test::temporary_directory folder;
  const std::vector<std::string> options{"--dtype", "float64", "--epochs", "5"};
  const run four = train(folder.path(), 4, options), one = train(folder.path(), 1, options);
  CAPTURE(four.out);
  REQUIRE(four.status == 0);
  REQUIRE(one.status == 0);
  REQUIRE(four.losses.size() == 115);
  REQUIRE(one.losses.size() == 115);
  CHECK(largest_difference(four, one, 115) < 1e-9);
  CHECK(four.out.find("(all equal)") != std::string::npos);
}

TEST_CASE("digits: in float32 the first 10 steps agree to 1e-5, with gradient accumulation too") {
  const tutti_test::temporary_directory folder;
  const run one = train(folder.path(), 1, {"--epochs", "1"});
  REQUIRE(one.losses.size() == 23);
  for (const char* parts : {"1", "4"}) {
    const run four = train(folder.path(), 4, {"--epochs", "1", "--accumulate", parts});
    CAPTURE(four.out);
    REQUIRE(four.status == 0);
    REQUIRE(four.losses.size() == 23);
    CHECK(largest_difference(four, one, 10) < 1e-5);
  }
}

TEST_CASE("digits: gradients of 16 and of 8 bits train as well, and all ranks stay equal") {
  const tutti_test::temporary_directory folder;
  const run whole = train(folder.path(), 4, {"--epochs", "3"});
  REQUIRE(whole.losses.size() == 69);
  for (const char* how : {"bf16", "int8"}) {
    const run narrow = train(folder.path(), 4, {"--epochs", "3", "--compress", how});
    CAPTURE(narrow.out);
    REQUIRE(narrow.status == 0);
    REQUIRE(narrow.losses.size() == 69);
    CHECK(narrow.losses != whole.losses);
    CHECK(largest_difference(narrow, whole, 10) < 0.02);
    CHECK(narrow.losses.back() < 0.5 * narrow.losses.front());
    CHECK(narrow.out.find("(all equal)") != std::string::npos);
  }
}

TEST_CASE("digits: a divided optimizer and a scaled loss change no bit; Adasum trains") {
  const tutti_test::temporary_directory folder;
  const auto parameters = [](const run& r) {
    CAPTURE(r.out);
    REQUIRE(r.status == 0);
    REQUIRE(r.out.find("(all equal)") != std::string::npos);
    return r.out.substr(r.out.find("parameters:"));
  };
  const std::vector<std::string> plain{"--epochs", "1", "--accumulate", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), plain.begin(), plain.end());
    return train(folder.path(), 3, more);
  };
  const std::string expected = parameters(with({}));
  CHECK(parameters(with({"--zero", "1"})) == expected);
  CHECK(parameters(with({"--zero", "2", "--scaler"})) == expected);
  CHECK(parameters(with({"--scaler", "--compress=bf16", "--zero=1"})) == parameters(with({"--compress", "bf16"})));
  const run adasum = with({"--adasum"}), narrow = with({"--adasum", "--compress", "bf16", "--zero=1", "--scaler"});
  CHECK(parameters(adasum) != expected);
  CHECK(parameters(narrow) != expected);
  for (const run& r : {adasum, narrow}) CHECK(r.losses.back() < 0.5 * r.losses.front());
  const run refused = with({"--zero", "2", "--adasum"});
  CHECK(refused.status == 2);
  CHECK(refused.out.find("--adasum needs whole gradients") != std::string::npos);
}

TEST_CASE("digits: with --shards any number of ranks ends with the same parameters") {
  const tutti_test::temporary_directory folder;
  std::vector<std::string> hashes;
  for (const int ranks : {1, 2, 3}) {
    const run r = train(folder.path(), ranks, {"--epochs", "1", "--shards", "4", "--zero=1"});
    CAPTURE(r.out);
    REQUIRE(r.status == 0);
    REQUIRE(r.out.find("(all equal)") != std::string::npos);
    hashes.push_back(r.out.substr(r.out.find("rank 0 "), 23));
  }
  CHECK(hashes[0] == hashes[1]);
  CHECK(hashes[0] == hashes[2]);
}

TEST_CASE("digits: momentum goes on from a checkpoint, whether it was divided or is") {
  const tutti_test::temporary_directory folder;
  const auto file = folder.path() / "1.ckpt", copy = folder.path() / "2.ckpt";
  const auto until = [&](const char* epochs, const std::filesystem::path& from, const char* zero) {
    std::vector<std::string> options{"--epochs", epochs, "--checkpoint", from.string()};
    if (*zero != '0') options.insert(options.end(), {"--zero", zero});
    const run r = train(folder.path(), 3, options);
    CAPTURE(r.out);
    REQUIRE(r.status == 0);
    REQUIRE(r.losses.size() >= 23);
    return std::vector<double>(r.losses.end() - 23, r.losses.end());  // a run that goes on appends to its log
  };
  (void)until("1", file, "2");
  std::filesystem::copy_file(file, copy);
  CHECK(until("2", file, "0") == until("2", copy, "1"));
}

TEST_CASE("digits: rank 0 writes the checkpoint, all ranks resume from it, on another number of ranks") {
  const tutti_test::temporary_directory folder;
  const std::string checkpoint = (folder.path() / "digits.ckpt").string();
  const run whole = train(folder.path(), 2, {"--dtype", "float64", "--epochs", "3"});
  REQUIRE(train(folder.path(), 2, {"--dtype", "float64", "--epochs", "3", "--checkpoint", checkpoint}).status == 0);
  const run again = train(folder.path(), 3, {"--dtype", "float64", "--epochs", "3", "--checkpoint", checkpoint});
  CAPTURE(again.out);
  CHECK(again.status == 0);
  CHECK(again.out.find("resumed from") != std::string::npos);
  CHECK(again.out.find("(all equal)") != std::string::npos);
  CHECK(whole.losses.size() == 69);
}
