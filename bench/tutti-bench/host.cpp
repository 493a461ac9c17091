#include "host.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exercise.hpp"

namespace bench {
namespace {

/// A buffer of `count` elements: in ordinary memory, in such that is registered, or from communicator::allocate.
template <class T>
class buffer {
 public:
  buffer(communicator& world, const options& o, std::size_t count) {
    if (o.registration == 2) {
      shared_ = world.allocate<T>(count);
      all_ = shared_.span();
    } else {
      own_.resize(count);
      all_ = own_;
      if (o.registration == 1) registered_ = world.register_buffer(own_);
    }
  }
  [[nodiscard]] std::span<T> first(std::size_t count) const { return all_.first(count); }

 private:
  tutti::mapped_array<T> shared_;
  std::vector<T> own_;
  tutti::registration registered_;
  std::span<T> all_;
};

/// A collective on elements of T, with buffers for the largest size.
template <class T>
class on_host {
 public:
  on_host(communicator& world, const options& o)
      : world_(world),
        o_(o),
        what_(o, world.rank(), world.size(), 0),
        how_{.via = tutti::algorithm_of(o.algorithm)},
        in_(world, o, what_.most()),
        out_(world, o, what_.most()) {}

  [[nodiscard]] timing measure(std::size_t all, placements where) {
    timing t;
    const std::span<T> in = in_.first(all), out = out_.first(all), result = where == placements::in_place ? in : out;
    for (int k = 0; k < o_.checks; ++k) {
      what_.fill(in, where);
      if (where == placements::out_of_place) std::fill(out.begin(), out.end(), T{});
      round(all, where, 1);
      t.wrong += what_.wrong(result, where);
    }
    std::fill(in.begin(), in.end(), T{});
    time_rounds(all, where, t);
    t.us = world_.all_reduce(t.us, tutti::mean).wait();
    t.wrong = world_.all_reduce(t.wrong).wait();
    return t;
  }

 private:
  /// Issues `operations` operations at once and waits for them.
  void round(std::size_t all, placements where, int operations) {
    flights_.clear();
    for (int i = 0; i < operations; ++i)
      what_.begin(world_, how_, in_.first(all), out_.first(all), where,
                  [&](auto flight) { flights_.push_back(std::move(flight)); });
    for (auto& f : flights_) f.wait();
  }

  /// Times rounds as nccl-tests does: warm-up, barrier, rounds back to back.
  void time_rounds(std::size_t all, placements where, timing& t) {
    for (int i = 0; i < o_.warmup; ++i) round(all, where, o_.aggregate);
    world_.barrier().wait();
    std::vector<double> rounds(static_cast<std::size_t>(o_.iterations));
    const auto start = tutti::clock::now();
    auto before = start;
    for (double& us : rounds) {
      round(all, where, o_.aggregate);
      const auto now = tutti::clock::now();
      us = std::chrono::duration<double, std::micro>(now - before).count() / o_.aggregate;
      before = now;
    }
    t.us = std::chrono::duration<double, std::micro>(before - start).count() / (o_.iterations * o_.aggregate);
    world_.all_reduce(rounds, tutti::max).wait();
    t.tell(std::move(rounds));
  }

  communicator& world_;
  const options& o_;
  exercise<T> what_;
  tutti::call_options how_;
  buffer<T> in_, out_;
  std::vector<tutti::op> flights_;
};

}  // namespace

void run_on_host(communicator& world, const options& o, table& rows) {
  if (world.rank() == 0) rows.header(world.size());
  with_type(o.type, [&]<class T>(const T*) {
    on_host<T> bench{world, o};
    sweep<T>(world, o, rows, [&](std::size_t all, placements where) { return bench.measure(all, where); });
  });
}

}  // namespace bench
