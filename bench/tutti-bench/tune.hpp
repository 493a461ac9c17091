#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/algo/selection/supported.hpp>
#include <tutti/tutti.hpp>

#include "tune_rules.hpp"

namespace bench {

/// A tuner: measures all algorithms of every collective that has several on this world, and makes a table for
/// TUTTI_TUNING. Measures sizes in ascending order, so that a short budget leaves out the largest; always measures the
/// smallest. Does not measure collectives that `direct` can run: it tunes its staging itself, and only it moves buffers
/// from `allocate` without copies, so that the fastest algorithm for other buffers would be wrong for these.
template <class World>
class tuner {
 public:
  tuner(World& world, tutti::duration budget) : world_(world), budget_(seconds(budget)), began_(tutti::clock::now()) {}

  /// Measures, and returns the table, which is equal on all ranks. Collective. Passes each measurement to `progress`.
  template <class Progress>
  std::string run(Progress progress) {
    in_.assign(largest / sizeof(float), 1), out_.assign(in_.size(), 1);
    visit(smallest, [&]<class Args>(const Args*, what_counts w, auto) {
      std::vector<tutti::algorithm> possible;
      for (const tutti::algorithm a : tutti::algo::supported_algorithms<Args>)
        if (world_.backend().template can<Args>(a, sizeof(float))) possible.push_back(a);
      if (std::ranges::count(possible, tutti::algorithm::direct) != 0) possible = {tutti::algorithm::direct};
      series_.push_back({Args::name, w, possible, {}});
    });
    for (std::size_t bytes = smallest; bytes <= largest; bytes *= 4) {
      std::size_t i = 0;
      visit(bytes, [&]<class Args>(const Args*, what_counts, auto start) {
        series& s = series_[i++];
        if (s.algorithms.size() < 2) return;
        sample row{bytes, std::vector<double>(s.algorithms.size())};
        for (std::size_t a = 0; a < row.seconds.size(); ++a) {
          if ((bytes > smallest && elapsed_ > budget_) || s.hopeless(a)) continue;
          row.seconds[a] = time(bytes, [&] { return start(tutti::call_options{.via = s.algorithms[a]}); });
          progress(s.collective, bytes, s.algorithms[a], row.seconds[a]);
        }
        if (row.complete(s)) s.samples.push_back(std::move(row));
      });
    }
    return table_of(series_, tutti::algo::name(world_.backend().links()), world_.size());
  }

 private:
  static constexpr std::size_t smallest = 256, largest = std::size_t{16} << 20;

  static double seconds(tutti::duration d) { return std::chrono::duration<double>(d).count(); }

  /// Returns the median of the slowest rank's times, in seconds. Uses an equal part of the remaining budget for each
  /// remaining size and algorithm.
  template <class Start>
  double time(std::size_t bytes, Start start) {
    const auto once = [&] {
      world_.barrier().wait();
      const auto before = tutti::clock::now();
      start().wait();
      const auto after = tutti::clock::now();
      std::array<double, 2> both{seconds(after - before), seconds(after - began_)};
      world_.all_reduce(both, tutti::max).wait();
      elapsed_ = both[1];
      return both[0];
    };
    double sizes_left = 0, cells = 0;
    for (std::size_t b = bytes; b <= largest; b *= 4) ++sizes_left;
    for (const series& s : series_) cells += static_cast<double>(s.algorithms.size() < 2 ? 0 : s.algorithms.size());
    once();
    const double until = elapsed_ + std::max(budget_ - elapsed_, 0.0) / (sizes_left * cells);
    std::vector<double> times;
    while (times.size() < 2 || (elapsed_ < until && times.size() < 200)) times.push_back(once());
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }

  /// Calls f(args type, what its choice depends on, start) for each collective that has several algorithms. start(how)
  /// issues it with messages of about `bytes` bytes.
  template <class F>
  void visit(std::size_t bytes, F f) {
    using namespace tutti;
    using enum what_counts;
    const auto n = static_cast<std::size_t>(world_.size());
    const std::size_t block = std::max<std::size_t>(bytes / sizeof(float) / n, 1);
    const std::size_t all = std::min(block * n, in_.size() / n * n);
    counts_.assign(n, all / n);
    const std::span in{in_}, out{out_}, whole = in.first(all), result = out.first(all), mine = in.first(all / n),
                                        part = out.first(all / n);
    halves_ = {whole.first(all / 2), whole.subspan(all / 2)};
    const auto as = [&]<class Args>(const Args* a, what_counts w, auto start) { f(a, w, start); };
    as(args<all_reduce_args>, size, [=, this](call_options how) { return world_.all_reduce(whole, sum, how); });
    as(args<all_reduce_coalesced_args>, size,
       [=, this](call_options how) { return world_.all_reduce_coalesced(halves_, sum, how); });
    as(args<broadcast_args>, size, [=, this](call_options how) { return world_.broadcast(whole, 0, how); });
    as(args<reduce_args>, size, [=, this](call_options how) { return world_.reduce(whole, result, 0, sum, how); });
    as(args<scan_args>, size, [=, this](call_options how) { return world_.scan(whole, result, sum, how); });
    as(args<exclusive_scan_args>, size,
       [=, this](call_options how) { return world_.exclusive_scan(whole, result, sum, how); });
    as(args<reduce_scatter_args>, size,
       [=, this](call_options how) { return world_.reduce_scatter(whole, part, sum, how); });
    as(args<all_gather_args>, size, [=, this](call_options how) { return world_.all_gather(mine, result, how); });
    as(args<gather_args>, size, [=, this](call_options how) { return world_.gather(mine, result, 0, how); });
    as(args<scatter_args>, size, [=, this](call_options how) { return world_.scatter(whole, part, 0, how); });
    as(args<reduce_scatter_v_args>, nothing,
       [=, this](call_options how) { return world_.reduce_scatter_v(whole, part, counts_, sum, how); });
    as(args<all_gather_v_args>, nothing,
       [=, this](call_options how) { return world_.all_gather_v(mine, result, counts_, how); });
    as(args<gather_v_args>, nothing,
       [=, this](call_options how) { return world_.gather_v(mine, result, counts_, 0, how); });
    as(args<scatter_v_args>, nothing,
       [=, this](call_options how) { return world_.scatter_v(whole, part, counts_, 0, how); });
    as(args<all_to_all_args>, nothing, [=, this](call_options how) { return world_.all_to_all(whole, result, how); });
    as(args<all_to_all_v_args>, nothing,
       [=, this](call_options how) { return world_.all_to_all_v(whole, counts_, result, counts_, how); });
  }
  template <class Args>
  static constexpr const Args* args = nullptr;

  World& world_;
  double budget_, elapsed_ = 0;  // in seconds; the latest rank's time, equal on all ranks
  tutti::deadline began_;
  std::vector<float> in_, out_;
  std::vector<std::size_t> counts_;
  std::array<std::span<float>, 2> halves_;
  std::vector<series> series_;
};

}  // namespace bench
