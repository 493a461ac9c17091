#include "digits/progress.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

// What a rank tells when its output is a file.
std::string told_by(int rank) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), std::fclose};
  REQUIRE(file != nullptr);
  digits::progress progress{rank, 2, file.get()};
  progress.step(1, 1, 22, 0.5);
  digits::metrics test;
  test.loss.add_sum(3, 10);
  for (std::size_t i = 0; i < 10; ++i)  // nine of ten are right, and one comes second
    test.accuracy.add(std::vector<float>{0, 1, 2}, std::vector<int>{i < 9 ? 2 : 1});
  progress.epoch(1, 0.5, test, 1234);
  progress.line("done");
  std::rewind(file.get());
  std::string text(500, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

}  // namespace

TEST_CASE("digits progress: rank 0 writes plain lines to a file, the others nothing") {
  CHECK(told_by(0) ==
        "epoch  1/2  loss 0.50000  test loss 0.30000  top-1  90.00 %  top-5 100.00 %  1234 images/s\ndone\n");
  CHECK(told_by(1).empty());
}
