#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/tutti.hpp>

#include "options.hpp"

namespace bench {

/// Measures every algorithm of every collective that can be tuned on this world, and writes a table for TUTTI_TUNING.
class tuner {
 public:
  tuner(tutti::communicator<>& world, const std::string& file) : world_(world), file_(file) {}

  void run() {
    const auto n = static_cast<std::size_t>(world_.size());
    std::vector<float> in(largest / sizeof(float)), out(in.size());
    const auto floats = [](std::size_t bytes) { return bytes / sizeof(float); };
    sweep<tutti::all_reduce_args>(1, [&](std::size_t bytes, auto how) {
      return world_.all_reduce(std::span{in}.first(floats(bytes)), tutti::sum, how);
    });
    sweep<tutti::broadcast_args>(
        1, [&](std::size_t bytes, auto how) { return world_.broadcast(std::span{in}.first(floats(bytes)), 0, how); });
    sweep<tutti::reduce_scatter_args>(n, [&](std::size_t bytes, auto how) {
      return world_.reduce_scatter(std::span{in}.first(floats(bytes)), std::span{out}.first(floats(bytes) / n),
                                   tutti::sum, how);
    });
    sweep<tutti::all_gather_args>(n, [&](std::size_t bytes, auto how) {
      return world_.all_gather(std::span{in}.first(floats(bytes) / n), std::span{out}.first(floats(bytes)), how);
    });
    if (world_.rank() != 0) return;
    std::ofstream table(file_);
    table << "tutti tuning 1\n# collective links ranks bytes algorithm\n" << rules_;
    if (!table.flush()) throw std::runtime_error("cannot write " + file_);
  }

 private:
  static constexpr std::size_t smallest = 256, largest = std::size_t{32} << 20;
  static constexpr std::chrono::milliseconds per_cell{60};
  static constexpr double worth_it = 0.95;  // of the time of the algorithm that the sizes before have

  /// The median of the slowest rank's times, in seconds.
  template <class Start>
  double time(Start start) {
    const auto once = [&] {
      world_.barrier().wait();
      const auto before = tutti::clock::now();
      start().wait();
      return world_.all_reduce(std::chrono::duration<double>(tutti::clock::now() - before).count(), tutti::max).wait();
    };
    std::vector<double> times;
    double total = once();
    for (total = 0; (total < std::chrono::duration<double>(per_cell).count() || times.size() < 3) && times.size() < 300;
         total += times.back())
      times.push_back(once());
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  }

  template <class Args, class Start>
  void sweep(std::size_t multiple, Start start) {
    tutti::algorithm chosen = tutti::algorithm::automatic;
    std::size_t previous = 0;
    for (std::size_t bytes = smallest; bytes <= largest; bytes *= 4) {
      const std::size_t whole = bytes / (multiple * sizeof(float)) * multiple * sizeof(float);
      double best = 0, of_chosen = 0;
      tutti::algorithm fastest = tutti::algorithm::automatic;
      for (const tutti::algorithm a : tutti::algo::algorithms_of<Args>) {
        if (!world_.backend().template can<Args>(a, sizeof(float))) continue;
        const double t = time([&] { return start(whole, tutti::issue{.via = a}); });
        if (world_.rank() == 0) std::fprintf(stderr, "%s %zu %s %.2f us\n", Args::name, whole, tutti::name(a), t * 1e6);
        if (a == chosen) of_chosen = t;
        if (fastest == tutti::algorithm::automatic || t < best) best = t, fastest = a;
      }
      if (fastest == chosen || (chosen != tutti::algorithm::automatic && best > worth_it * of_chosen)) {
        previous = bytes;
        continue;
      }
      // Between two sizes the change lies in the middle, as sizes are powers.
      if (chosen != tutti::algorithm::automatic) rule<Args>(std::to_string(2 * previous), chosen);
      chosen = fastest;
      previous = bytes;
    }
    if (chosen != tutti::algorithm::automatic) rule<Args>("*", chosen);
  }

  template <class Args>
  void rule(const std::string& bytes, tutti::algorithm a) {
    rules_ += std::string(Args::name) + " " + tutti::algo::name(world_.backend().links()) + " " +
              std::to_string(world_.size()) + " " + bytes + " " + tutti::name(a) + "\n";
  }

  tutti::communicator<>& world_;
  std::string file_, rules_;
};

}  // namespace bench
