#include <chrono>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

/// All of tutti::train in worlds of processes: shared memory, TCP, two machines, and one world after the other.
namespace {

struct run {
  std::string text;
  double loss = 1e9;
  int told = 0;
};
run train(int ranks, const std::string& folder, int rounds, const std::string& where) {
  tutti_test::processes all;
  all.start(tutti_test::launched(ranks, "train", {"folder=" + folder, "rounds=" + std::to_string(rounds), where}));
  run r;
  r.text = tutti_test::all_text(all.wait(std::chrono::seconds{120}));
  r.told = tutti_test::occurrences(r.text, "loss ");
  if (const auto at = r.text.find("loss "); at != std::string::npos) r.loss = std::atof(r.text.c_str() + at + 5);
  return r;
}

}  // namespace

TEST_CASE("train: learns on real processes, and goes on from the shards of a world of another size") {
  const tutti_test::temporary_directory folder;
  const run first = train(3, folder.file("ckpt"), 4, "transport=shm");
  CAPTURE(first.text);
  REQUIRE(first.told == 3);
  CHECK(tutti_test::occurrences(first.text, "epoch 4 ") == 3);
  const run second = train(2, folder.file("ckpt"), 8, "transport=tcp");
  CAPTURE(second.text);
  REQUIRE(second.told == 2);
  CHECK(tutti_test::occurrences(second.text, "epoch 12 ") == 2);
  CHECK(second.loss < first.loss);
  CHECK(second.loss < 0.05);
  const run third = train(3, folder.file("ckpt"), 1, "machine=2");
  CAPTURE(third.text);
  REQUIRE(third.told == 3);
  CHECK(tutti_test::occurrences(third.text, "epoch 13 ") == 3);
  CHECK(third.loss < 0.05);
}
