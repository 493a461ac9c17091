#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/processes.hpp"

/// The examples, as a user runs them.
namespace tutti_test {

inline processes::report run_example(const std::string& example, int ranks,
                                     const std::vector<std::string>& options = {}) {
#ifdef TUTTI_EXAMPLE_DIR
  const std::string path = TUTTI_EXAMPLE_DIR "/" + example;
#else
  const std::string path = "./" + example;
#endif
  processes started;
  command what{tutti_run(), {"-n", std::to_string(ranks), "--output", "plain", "--", path}, {}};
  what.arguments.insert(what.arguments.end(), options.begin(), options.end());
  started.start(what);
  return started.wait(std::chrono::seconds{150}).front();
}

struct trainer_run {
  int status;
  std::string out;
  std::vector<double> losses;
};

/// Runs a trainer with a loss log of its own, in `folder`.
inline trainer_run train(const std::string& example, const std::filesystem::path& folder, int ranks,
                         std::vector<std::string> options) {
  const auto log = folder / ("losses-" + std::to_string(ranks));
  options.insert(options.end(), {"--loss-log", log.string()});
  const auto report = run_example(example, ranks, options);
  trainer_run result{report.status, report.out, {}};
  std::ifstream file(log);
  for (std::size_t step = 0; file >> step;) file >> result.losses.emplace_back();
  return result;
}

/// Of the losses of the first steps, relative to those of `b`.
inline double largest_difference(const trainer_run& a, const trainer_run& b, std::size_t steps) {
  double largest = 0;
  for (std::size_t i = 0; i < steps; ++i)
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  return largest;
}

}  // namespace tutti_test
