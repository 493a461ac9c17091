#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/grad/broadcast_parameters.hpp>
#include <utility>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using tutti::errc;
using world_t = ranks::communicator;

template <class T>
std::vector<std::vector<T>> model(int rank, const std::vector<std::size_t>& counts) {
  std::vector<std::vector<T>> all;
  for (const std::size_t n : counts) {
    auto& v = all.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = T(static_cast<float>(100 * rank + static_cast<int>(i % 97)));
  }
  return all;
}
template <class T>
std::vector<std::span<T>> spans(std::vector<std::vector<T>>& all) {
  return {all.begin(), all.end()};
}

template <class R>
concept taken = requires(world_t& world, R range) { tutti::grad::broadcast_parameters(world, range); };
using make_span = std::span<float> (*)(int);
using once = std::ranges::transform_view<std::ranges::istream_view<int>, make_span>;
static_assert(taken<std::vector<std::span<float>>> && !taken<once>);  // it is walked twice

}  // namespace

TEST_CASE_TEMPLATE("broadcast_parameters: all ranks have the root's, in chunks of any size", T, float, double,
                   tutti::bfloat16) {
  const std::vector<std::size_t> counts{0, 3, 1000, 1, 0, 64, 63, 129};
  for (const int root : {0, 2})
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{256}, std::size_t{1} << 20}) {
      const auto all = ranks::outcomes(3, [&](world_t& world) {
        auto mine = model<T>(world.rank(), counts), expected = model<T>(root, counts);
        tutti::grad::broadcast_parameters(world, spans(mine), root, chunk);
        for (std::size_t i = 0; i < counts.size(); ++i)
          for (std::size_t e = 0; e < counts[i]; ++e)
            if (static_cast<float>(mine[i][e]) != static_cast<float>(expected[i][e]))
              throw std::runtime_error("tensor " + std::to_string(i));
      });
      for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
    }
}

TEST_CASE("broadcast_parameters: other tensors are found before anything is written, a wrong call before it is sent") {
  const auto all = ranks::outcomes(3, [&](world_t& world) {
    auto mine = model<float>(world.rank(), {5, world.rank() == 1 ? std::size_t{8} : std::size_t{7}, 2});
    const auto o = ranks::outcome_of([&] { tutti::grad::broadcast_parameters(world, spans(mine)); });
    if (o.failed != errc::mismatch || !o.says("broadcast_parameters: parameter 1 is 8 x float32 on rank 1 and 7 x"))
      throw std::runtime_error(o.text);
    if (mine[0][1] != static_cast<float>(100 * world.rank() + 1)) throw std::runtime_error("written to");
    auto same = model<float>(world.rank(), {5});
    if (!ranks::outcome_of([&] { tutti::grad::broadcast_parameters(world, spans(same), 0, 0); }).usage)
      throw std::runtime_error("chunks of nothing");
    tutti::grad::broadcast_parameters(world, spans(same));
    if (same[0][1] != 1) throw std::runtime_error("the communicator is as good as before");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("broadcast_parameters: on many schedules; a rank that dies or falls silent is an error, not a hang") {
  const std::vector<std::size_t> counts{0, 3, 1000, 1, 64, 129};
  int losses = 0;
  tutti::for_seeds(1, 60, [&](std::uint64_t seed) {
    const int n = 2 + static_cast<int>(seed % 4), root = static_cast<int>(seed / 4) % n;
    tutti::sim_record record;
    tutti::sim_options how{.seed = seed, .memory = seed % 3 ? tutti::sim_memory::shared : tutti::sim_memory::separate};
    how.record = &record;
    std::vector<int> whole(static_cast<std::size_t>(n)), last(whole);  // ended and began its last call
    const auto broadcast = [&](tutti::communicator<tutti::sim>& world) {
      auto mine = model<float>(world.rank(), counts);
      tutti::grad::broadcast_parameters(world, spans(mine), root, 1024);
      if (mine != model<float>(root, counts)) throw std::logic_error("not the root's");
      ++last[static_cast<std::size_t>(world.rank())];
      world.barrier().wait();
      ++whole[static_cast<std::size_t>(world.rank())];
    };
    tutti::run_sim(n, how, broadcast);
    if (std::count(whole.begin(), whole.end(), 1) != n) throw std::logic_error("a rank is missing");
    how.lose_rank = static_cast<int>(seed) % n;
    how.lose_at_step = 1 + seed % 23;
    how.how = seed % 2 ? tutti::sim_loss::killed : tutti::sim_loss::silent;
    const errc expected = seed % 2 ? errc::peer_lost : errc::timed_out;
    try {
      tutti::run_sim(n, how, broadcast);
    } catch (const tutti::error& e) {
      if (e.kind() != expected) throw;
      if (std::count(whole.begin(), whole.end(), 2) != 0) throw std::logic_error("a rank has not noticed");
      ++losses;
      return;
    }
    // Who has begun its last call may have sent all that others wait for.
    if (record.lost_at != 0 && last[static_cast<std::size_t>(how.lose_rank)] != 2)
      throw std::logic_error("nobody has noticed");
  });
  CHECK(losses > 30);
}
