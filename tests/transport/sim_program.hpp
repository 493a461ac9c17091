#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/async/when_all.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/transport/sim/random.hpp>

#include <support/grid.hpp>

// Random programs whose results are known in closed form.

namespace sim_program {

using tutti::sim_random;
using value = std::int64_t;

/// How many schedules a test tries. A simulation is one thread, and sanitizers are slow.
inline constexpr std::uint64_t seeds = tutti_test::slow ? 150 : 1000;

/// What rank `r` puts into element `i` of operation `k`.
inline value operand(std::uint64_t k, int r, std::size_t i) {
  return static_cast<value>((k * 31 + i * 7) % 97) + value{5} * r + 1;
}
inline value sum_of(std::uint64_t k, int n, std::size_t i) { return n * operand(k, 0, i) + value{5} * n * (n - 1) / 2; }
inline value max_of(std::uint64_t k, int n, std::size_t i) { return operand(k, n - 1, i); }

template <class Wanted>
void expect(const char* what, std::uint64_t k, std::span<const value> got, Wanted wanted) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != wanted(i))
      throw std::runtime_error(std::string(what) + " #" + std::to_string(k) + ": element " + std::to_string(i) +
                               " of " + std::to_string(got.size()) + " is " + std::to_string(got[i]) + ", not " +
                               std::to_string(wanted(i)));
}

/// One rank's way through a program. All ranks draw the same numbers from `shared_`, so that they do the same; from
/// `own_` come the choices that may differ.
template <class World>
class player {
 public:
  player(World& world, std::uint64_t seed)
      : world_(world), shared_(seed * 2 + 1), own_(seed * 1000 + static_cast<std::uint64_t>(world.rank())) {}

  void play(int actions) {
    for (int a = 0; a < actions; ++a) act();
  }

 private:
  using finish = std::function<void()>;
  struct held {
    std::vector<value> in, out;
    std::unique_ptr<tutti::op> op;
  };

  [[nodiscard]] int n() const { return world_.size(); }
  [[nodiscard]] int me() const { return world_.rank(); }
  [[nodiscard]] auto places() const { return static_cast<std::size_t>(n()); }

  std::size_t count() {
    if (shared_.one_in(40)) return 70'000;  // several slots, several segments
    if (shared_.one_in(12)) return 9'000;   // more than travels unasked
    return static_cast<std::size_t>(shared_.one_of({0, 1, 2, 7, 100, 1000}));
  }
  int somebody() { return static_cast<int>(shared_.below(places())); }

  void act() {
    switch (shared_.below(12)) {
      case 0:
        return text();
      case 1:
        return scalar();
      case 2:
      case 3:
        return messages();
      case 4:
        return group();
      case 5:
        return tutti::sync_wait(world_, together());
      case 6:
      case 7:
        return several();
      default:
        return start()();
    }
  }

  /// Issues a collective on buffers of its own; calling what comes back waits for it and checks the result.
  finish start() {
    const std::uint64_t k = ++operations_;
    switch (shared_.below(7)) {
      case 0:
        return [op = std::make_shared<tutti::op>(world_.barrier())] { op->wait(); };
      case 1:
        return broadcast(k);
      case 2:
        return reduce_scatter(k);
      case 3:
        return all_gather(k);
      default:
        return all_reduce(k);
    }
  }

  std::shared_ptr<held> fill(std::uint64_t k, std::size_t in, std::size_t out) {
    auto h = std::make_shared<held>();
    for (std::size_t i = 0; i < in; ++i) h->in.push_back(operand(k, me(), i));
    h->out.resize(out);
    return h;
  }

  finish all_reduce(std::uint64_t k) {
    using enum tutti::algorithm;
    const std::size_t c = count();
    auto h = fill(k, c, c);
    tutti::algorithm via = automatic;
    switch (shared_.below(5)) {
      case 0:
        via = ring;
        break;
      case 1:
        via = recursive_doubling;
        break;
      case 2:
        via = halving_doubling;
        break;
      default:
        break;
    }
    const bool in_place = shared_.one_in(2), sum = shared_.one_in(2);
    if (in_place) {
      h->out.swap(h->in);
      h->op = sum ? make(world_.all_reduce(h->out, tutti::sum, {.via = via}))
                  : make(world_.all_reduce(h->out, tutti::max, {.via = via}));
    } else {
      h->op = sum ? make(world_.all_reduce(h->in, h->out, tutti::sum, {.via = via}))
                  : make(world_.all_reduce(h->in, h->out, tutti::max, {.via = via}));
    }
    return [h, k, sum, size = n()] {
      h->op->wait();
      expect("all_reduce", k, h->out, [&](std::size_t i) { return sum ? sum_of(k, size, i) : max_of(k, size, i); });
    };
  }

  /// One of two algorithms, or what tutti chooses.
  tutti::algorithm one_of(tutti::algorithm a, tutti::algorithm b) {
    const auto which = shared_.below(3);
    return which == 0 ? a : which == 1 ? b : tutti::algorithm::automatic;
  }

  finish broadcast(std::uint64_t k) {
    const int root = somebody();
    auto h = fill(k, count(), 0);
    h->op = make(world_.broadcast(h->in, root, {.via = one_of(tutti::algorithm::tree, tutti::algorithm::chain)}));
    return [h, k, root] {
      h->op->wait();
      expect("broadcast", k, h->in, [&](std::size_t i) { return operand(k, root, i); });
    };
  }

  finish reduce_scatter(std::uint64_t k) {
    const std::size_t c = count();
    auto h = fill(k, c * places(), c);
    h->op = make(world_.reduce_scatter(
        h->in, h->out, tutti::sum, {.via = shared_.one_in(3) ? tutti::algorithm::ring : tutti::algorithm::automatic}));
    return [h, k, size = n(), first = c * static_cast<std::size_t>(me())] {
      h->op->wait();
      expect("reduce_scatter", k, h->out, [&](std::size_t i) { return sum_of(k, size, first + i); });
    };
  }

  finish all_gather(std::uint64_t k) {
    const std::size_t c = count();
    auto h = fill(k, c, c * places());
    h->op = make(world_.all_gather(h->in, h->out, {.via = one_of(tutti::algorithm::ring, tutti::algorithm::bruck)}));
    return [h, k, c] {
      h->op->wait();
      expect("all_gather", k, h->out, [&](std::size_t i) { return operand(k, static_cast<int>(i / c), i % c); });
    };
  }

  void text() {
    const int root = somebody();
    const std::uint64_t k = ++operations_;
    const std::string wanted(static_cast<std::size_t>(shared_.one_of({0, 1, 50, 3000})),
                             static_cast<char>('a' + k % 26));
    std::string got = me() == root ? wanted : "something else";
    world_.broadcast(got, root).wait();
    if (got != wanted) throw std::runtime_error("a string of " + std::to_string(got.size()) + " bytes");
  }

  void scalar() {
    const std::uint64_t k = ++operations_;
    auto sum = world_.all_reduce(operand(k, me(), 0));
    auto root = world_.broadcast(operand(k, me(), 1), n() - 1);
    const value b = root.wait(), s = sum.wait();
    expect("scalars", k, std::vector<value>{s, b},
           [&](std::size_t i) { return i == 0 ? sum_of(k, n(), 0) : operand(k, n() - 1, 1); });
  }

  /// To everyone from everyone, of tags that are received in another order than they were sent.
  void messages() {
    const std::uint64_t k = ++operations_;
    const std::size_t tags = 1 + static_cast<std::size_t>(shared_.below(3));
    std::vector<std::size_t> counts;
    for (std::size_t t = 0; t < 2 * tags; ++t)  // two of each tag
      counts.push_back(static_cast<std::size_t>(shared_.one_of({0, 1, 30, 500, 500, shared_.one_in(6) ? 9000u : 3u})));
    struct message {
      std::vector<value> data;
      int peer;
      std::size_t t;
    };
    std::vector<message> out, in;
    for (int peer = 0; peer < n(); ++peer)
      for (std::size_t t = 0; t < 2 * tags && peer != me(); ++t) {
        out.push_back({{}, peer, t});
        for (std::size_t i = 0; i < counts[t]; ++i) out.back().data.push_back(operand(k + t, me() + 10 * peer, i));
        in.push_back({std::vector<value>(counts[t]), peer, t});
      }
    // Messages of one tag match in order, so only whole tags may change places.
    const std::uint64_t turn = own_.below(tags);
    for (auto& m : in) m.t = (m.t % tags + turn) % tags + m.t / tags * tags;
    for (auto& m : in) m.data.resize(counts[m.t]);
    std::vector<tutti::op> ops;
    const bool receive_first = own_.one_in(2);
    const auto receive = [&] {
      for (auto& m : in) ops.push_back(world_.recv(m.data, m.peer, static_cast<std::uint32_t>(m.t % tags)));
    };
    if (receive_first) receive();
    for (auto& m : out) ops.push_back(world_.send(m.data, m.peer, static_cast<std::uint32_t>(m.t % tags)));
    if (!receive_first) receive();
    wait_in_any_order(ops);
    for (auto& m : in)
      expect("recv", k, m.data, [&](std::size_t i) { return operand(k + m.t, m.peer + 10 * me(), i); });
  }

  void several() {
    std::vector<finish> flying;
    for (std::uint64_t i = 2 + shared_.below(4); i > 0; --i) flying.push_back(start());
    while (!flying.empty()) {
      const auto next = flying.begin() + static_cast<std::ptrdiff_t>(own_.below(flying.size()));
      (*next)();
      flying.erase(next);
    }
  }

  void group() {
    const std::uint64_t colors = 1 + shared_.below(3), shift = shared_.below(5), seed = shared_.next();
    const bool backwards = shared_.one_in(2);
    const auto r = static_cast<std::uint64_t>(me());
    auto part = world_.split(static_cast<int>((r * 3 + shift) % colors), backwards ? -me() : 0);
    if (operations_ > 1'000'000) return;  // groups of groups of groups are enough
    player<World> inner{part, seed};
    inner.operations_ = operations_ + 600'000;
    if (shared_.one_in(2)) {
      auto outer = start();  // both at once
      inner.play(2);
      outer();
    } else {
      inner.play(2);
    }
  }

  tutti::task<> one_by_one(std::uint64_t k, value& total) {
    for (std::uint64_t i = 0; i < 3; ++i) total += co_await world_.all_reduce(operand(k + i, me(), 0));
  }
  tutti::task<> together() {
    const std::uint64_t k = ++operations_;
    const std::size_t c = count();
    auto h = fill(k, c, c);
    value total = 0;
    auto reduced = world_.all_reduce(h->in, h->out);
    auto met = world_.barrier();
    auto copy = world_.broadcast(operand(k, me(), 3), 0);
    const auto [a, b, first] =
        co_await tutti::when_all(std::tuple{std::move(reduced), std::move(met), std::move(copy)});
    (void)a, (void)b;
    co_await one_by_one(k, total);
    expect("when_all", k, h->out, [&](std::size_t i) { return sum_of(k, n(), i); });
    expect("when_all", k, std::vector<value>{first, total}, [&](std::size_t i) {
      return i == 0 ? operand(k, 0, 3) : sum_of(k, n(), 0) + sum_of(k + 1, n(), 0) + sum_of(k + 2, n(), 0);
    });
  }

  static std::unique_ptr<tutti::op> make(tutti::op o) { return std::make_unique<tutti::op>(std::move(o)); }
  void wait_in_any_order(std::vector<tutti::op>& ops) {
    while (!ops.empty()) {
      const auto next = ops.begin() + static_cast<std::ptrdiff_t>(own_.below(ops.size()));
      next->wait();
      ops.erase(next);
    }
  }

  template <class>
  friend class player;

  World& world_;
  sim_random shared_, own_;
  std::uint64_t operations_ = 0;
};

template <class World>
void play(World& world, std::uint64_t seed, int actions) {
  player<World>{world, seed}.play(actions);
}

}  // namespace sim_program
