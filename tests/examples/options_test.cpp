#include "digits/options.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "examples/temporary_directory.hpp"

namespace {

digits::options parse(const std::vector<const char*>& arguments) { return digits::parse_options(arguments); }
std::string error_in(const std::vector<const char*>& arguments) {
  return error_of([&] { parse(arguments); });
}

}  // namespace

TEST_CASE("digits options: defaults") {
  const auto found = parse({});
  CHECK(found.batch == 64);
  CHECK(found.accumulate == 1);
  CHECK(found.compress == digits::compression::none);
  CHECK((found.zero == 0 && !found.adasum && !found.scale_loss));
  CHECK(found.dtype == digits::element_type::float32);
  CHECK(found.todo == digits::action::train);
  CHECK(found.checkpoint.empty());
  CHECK(found.loss_log.empty());
}

TEST_CASE("digits options: values after a space and after =") {
  const auto found = parse({"--seed", "5", "--batch=128", "--epochs", "3", "--accumulate=4", "--compress", "int8",
                            "--dtype", "float64", "--lr", "2.5e-1", "--data", "/tmp/a=b", "--checkpoint=/tmp/c=d",
                            "--loss-log", "log", "--bench"});
  CHECK(found.seed == 5);
  CHECK(found.batch == 128);
  CHECK(found.epochs == 3);
  CHECK(found.accumulate == 4);
  CHECK(found.compress == digits::compression::int8);
  CHECK(found.dtype == digits::element_type::float64);
  CHECK(found.learning_rate == 0.25);
  CHECK(found.data == "/tmp/a=b");
  CHECK(found.checkpoint == "/tmp/c=d");
  CHECK(found.loss_log == "log");
  CHECK(found.todo == digits::action::measure_speed);
}

TEST_CASE("digits options: what is wrong is named") {
  CHECK(error_in({"--sed", "5"}) == "--sed is not an option; see --help");
  CHECK(error_in({"more"}) == "more is not an option; see --help");
  CHECK(error_in({"--seed"}) == "--seed needs a value");
  CHECK(error_in({"--data="}) == "--data needs a value");
  CHECK(error_in({"--bench=1"}) == "--bench takes no value");
  CHECK(contains(error_in({"--batch", "0"}), "--batch: 0 is not"));
  CHECK(contains(error_in({"--batch", "64x"}), "--batch: 64x is not"));
  CHECK(contains(error_in({"--seed=-1"}), "--seed: -1 is not"));
  CHECK(contains(error_in({"--lr", "nan"}), "--lr: nan is not"));
  CHECK(contains(error_in({"--zero", "3"}), "--zero: 3 is neither 1 nor 2"));
  CHECK(contains(error_in({"--dtype", "half"}), "--dtype: half is neither float32 nor float64"));
}

TEST_CASE("digits options: the help names every option") {
  const auto text = digits::usage();
  for (const char* name :
       {"--seed N", "--batch N", "--epochs N", "--accumulate N", "--dtype TYPE", "--zero STAGE", "--shards N",
        "--adasum", "--scaler", "--lr X", "--data PATH", "--checkpoint FILE", "--loss-log FILE", "--bench", "--help"})
    CHECK(contains(text, name));
}

TEST_CASE("digits options: what goes together, and what does not") {
  const auto all = parse({"--zero", "1", "--adasum", "--scaler", "--compress=bf16", "--accumulate", "2"});
  CHECK((all.zero == 1 && all.adasum && all.scale_loss));
  CHECK(parse({"--zero=2", "--scaler", "--accumulate=2"}).zero == 2);
  CHECK(contains(error_in({"--zero", "2", "--compress", "bf16"}), "--compress needs a reducer"));
  CHECK(contains(error_in({"--adasum", "--zero", "2"}), "--adasum needs whole gradients"));
  CHECK(parse({"--shards=8", "--zero=1", "--scaler"}).shards == 8);
  CHECK(contains(error_in({"--shards=8", "--adasum"}), "--shards adds gradients in its own way"));
  CHECK(contains(error_in({"--shards=8", "--accumulate=2"}), "without --accumulate"));
  CHECK(contains(error_in({"--adasum", "--compress", "int8"}), "use --compress bf16"));
}
