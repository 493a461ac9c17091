// The search for one split of a decision tree by a data-parallel learner. Every rank has other rows. A reduce_scatter_v
// sums the histograms of all features; each rank receives those of some features, in blocks of different lengths, and
// searches them for the best split.
//
//   tutti-run -n 3 -- 05_blocks
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr std::size_t rows = 1000, features = 10, bins = 16;

struct bin {
  double gradient = 0;
  std::int64_t rows = 0;
};

// A reduction function as language bindings pass it: on bytes, with the size of an element as an argument.
void add_bins(const void* in, void* inout, std::size_t element, std::size_t bytes) {
  const auto* from = static_cast<const bin*>(in);
  auto* to = static_cast<bin*>(inout);
  for (std::size_t i = 0; i < bytes / element; ++i) {
    to[i].gradient += from[i].gradient;
    to[i].rows += from[i].rows;
  }
}

std::vector<bin> histograms(std::size_t first_row, std::size_t n) {
  std::vector<bin> all(features * bins);
  for (std::size_t row = first_row; row < first_row + n; ++row)
    for (std::size_t f = 0; f < features; ++f) {
      const std::size_t value = (row * (2 * f + 3) + f) % bins;
      bin& b = all[f * bins + value];
      b.gradient += f == 7 && value < 5 ? 1.0 : std::sin(static_cast<double>(row));
      ++b.rows;
    }
  return all;
}

double best_gain(std::span<const bin> of_a_feature) {
  bin left, right;
  for (const bin& b : of_a_feature) add_bins(&b, &right, sizeof b, sizeof b);
  double best = 0;
  for (const bin& b : of_a_feature) {
    add_bins(&b, &left, sizeof b, sizeof b);
    right.gradient -= b.gradient;
    right.rows -= b.rows;
    if (left.rows == 0 || right.rows == 0) continue;
    const auto score = [](const bin& side) { return side.gradient * side.gradient / static_cast<double>(side.rows); };
    best = std::max(best, score(left) + score(right));
  }
  return best;
}

tutti::task<> program(tutti::communicator<>& world) {
  const auto share = [&](std::size_t n, int r) {  // the first ranks get one more if there is a remainder
    return n / static_cast<std::size_t>(world.size()) +
           (static_cast<std::size_t>(r) < n % static_cast<std::size_t>(world.size()));
  };
  const std::size_t my_rows = share(rows, world.rank()), my_features = share(features, world.rank());
  const std::size_t first_row = co_await world.exclusive_scan(my_rows);
  const std::size_t first_feature = co_await world.exclusive_scan(my_features);

  const std::vector<bin> mine = histograms(first_row, my_rows);
  std::vector<bin> sums(my_features * bins);
  std::vector<std::size_t> counts;  // bins of each rank
  for (int r = 0; r < world.size(); ++r) counts.push_back(share(features, r) * bins);
  co_await world.reduce_scatter_v(std::as_bytes(std::span{mine}), std::as_writable_bytes(std::span{sums}), counts,
                                  tutti::raw_reduction{&add_bins, sizeof(bin)});

  tutti::value_at<double> best{0, -1};
  for (std::size_t f = 0; f < my_features; ++f)
    if (const double gain = best_gain(std::span{sums}.subspan(f * bins, bins)); gain > best.value)
      best = {gain, static_cast<std::int64_t>(first_feature + f)};
  best = co_await world.all_reduce(best, tutti::maxloc);

  // Rank 0 receives the ranks' reports in any order.
  if (world.rank() != 0) {
    co_await world.send(std::span{&my_features, 1}, 0, 1);
    co_return;
  }
  std::size_t searched = my_features;
  for (int r = 1; r < world.size(); ++r) {
    std::size_t of_one = 0;
    const int from = co_await world.recv_any(std::span{&of_one, 1}, 1);
    std::printf("rank %d searched %zu features\n", from, of_one);
    searched += of_one;
  }
  std::printf("of %zu features, number %lld splits best: gain %.1f\n", searched, static_cast<long long>(best.index),
              best.value);
}

}  // namespace

int main() try {
  auto world = tutti::init();
  tutti::sync_wait(world, program(world));
} catch (const std::exception& e) {
  std::fprintf(stderr, "05_blocks: %s\n", e.what());
  return 1;
}
