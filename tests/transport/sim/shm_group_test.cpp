#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/algo/shm/group/group.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/transport/messaging/group_link.hpp>

#include <transport/drive.hpp>
#include <transport/sim_program.hpp>

namespace {

using namespace tutti;
using algo::shm_group;

/// Sees every step that a rank posts, and compares: what was posted in a slot stays until everyone has posted the next
/// step.
class watcher {
 public:
  explicit watcher(int ranks) : parts_(static_cast<std::size_t>(ranks)) {}

  /// The first shm group of a world is the world's own: its parts come first.
  void allocated(int rank, const std::byte* p, std::size_t bytes) {
    part& mine = parts_[static_cast<std::size_t>(rank)];
    if (bytes == shm_group::part_bytes && !mine.base) mine.base = p;
  }
  void look(int rank) {
    std::uint64_t least = ~std::uint64_t{0};
    for (const part& p : parts_) {
      if (!p.base) return;
      least = std::min(least, p.step());
    }
    for (part& p : parts_)
      for (std::uint64_t t : {p.seen, p.seen - 1})
        if (t != 0 && t <= p.seen && least < t + 1) overwritten_ += p.slot(t) != p.copies[t % 2];
    part& mine = parts_[static_cast<std::size_t>(rank)];
    if (mine.step() == mine.seen) return;
    mine.seen = mine.step();
    mine.copies[mine.seen % 2] = mine.slot(mine.seen);
    ++posts_;
  }
  [[nodiscard]] int overwritten() const { return overwritten_; }
  [[nodiscard]] int posts() const { return posts_; }

 private:
  static constexpr std::size_t looked_at = 8192;  // of a slot
  struct part {
    const std::byte* base = nullptr;
    std::uint64_t seen = 0;
    std::array<std::vector<std::byte>, 2> copies;

    [[nodiscard]] std::uint64_t step() const {
      std::uint64_t last = 0;
      for (const shm_group::flag& c : reinterpret_cast<const shm_group::line*>(base)->flags)
        last = std::max(last, c.step.load());
      return last;
    }
    [[nodiscard]] std::vector<std::byte> slot(std::uint64_t t) const {
      const std::byte* s = base + shm_group::slots_at + t % 2 * shm_group::slot_bytes;
      return {s, s + looked_at};
    }
  };
  std::vector<part> parts_;
  int overwritten_ = 0, posts_ = 0;
};

watcher* watching = nullptr;

class watched_transport : public sim_transport {
 public:
  using sim_transport::sim_transport;
  std::byte* allocate(std::size_t bytes) {
    std::byte* p = sim_transport::allocate(bytes);
    watching->allocated(rank(), p, bytes);
    return p;
  }
  void ring(int peer) noexcept {
    watching->look(rank());
    sim_transport::ring(peer);
    watching->look(rank());
  }
};

TEST_CASE("sim: no collective overwrites a slot of the group that is still read") {
  int posts = 0;
  for_seeds(1, sim_program::seeds / 4, [&](std::uint64_t seed) {
    const int size = 2 + static_cast<int>(seed % 4);
    watcher w{size};
    watching = &w;
    run_sim<composed<watched_transport>>(size, {.seed = seed, .memory = sim_memory::shared},
                                         [seed](auto& world) { sim_program::play(world, seed, 6); });
    if (w.overwritten() != 0) throw std::runtime_error(std::to_string(w.overwritten()) + " slots were overwritten");
    posts += w.posts();
  });
  CHECK(posts > 1000);
}

/// Rounds in which one rank gives and the others take, so that the giver has nobody to wait for but by the rule. With
/// `takes_turns` every rank gives in turn. Without `rule` a giver writes at once.
template <class Link>
routine give(Link link, shm_group& shm, bool takes_turns, bool rule, int& wrong) {
  shm_group::ticket turn{shm, link.link()};
  co_await turn;
  if (!shm.is_open()) co_await shm.open(link);
  for (int round = 0; round < 12; ++round) {
    const int giver = takes_turns ? round / 3 % link.size() : 0;
    const std::uint64_t step = shm.step() + 1;
    if (link.rank() == giver) {
      if (rule) co_await shm_group::posted_by(shm, link.link(), 0, link.size(), step - 1);
      std::memcpy(shm.slot(giver, step), &step, sizeof step);
      shm.post(link.link());
    } else {
      shm.post(link.link());
      co_await shm_group::posted_by(shm, link.link(), giver, giver + 1, step);
      std::uint64_t got = 0;
      std::memcpy(&got, shm.slot(giver, step), sizeof got);
      wrong += got != step;
    }
  }
}

struct finding {
  int wrong = 0, overwritten = 0;
};

template <class Make>
finding follow(std::uint64_t seed, Make make) {
  const int size = 2 + static_cast<int>(seed % 4);
  finding found;
  watcher w{size};
  watching = &w;
  const auto network = std::make_shared<sim_network>(size, sim_options{.seed = seed, .memory = sim_memory::shared});
  std::vector<status> ends(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r)
    network->schedule().start(r, std::size_t{512} << 10, [&, r] {
      watched_transport link{network, r};
      drive::rank_driver rank{link, 0};
      const group all{0, r, size, {}};
      shm_group shm;
      ends[static_cast<std::size_t>(r)] = rank.run(make(group_link{link, all, 1}, shm, found.wrong));
    });
  if (!network->run()) throw std::runtime_error("does not end");
  for (const status& s : ends)
    if (!s.ok()) throw std::runtime_error("failed");
  found.overwritten = w.overwritten();
  return found;
}

TEST_CASE("sim: the rule of the two slots holds on every schedule, and without it schedules are found that break it") {
  for (const bool takes_turns : {false, true})
    for (const bool rule : {true, false}) {
      int wrong = 0, overwritten = 0;
      for_seeds(1, sim_program::seeds / 4, [&](std::uint64_t seed) {
        const finding f =
            follow(seed, [&](auto l, shm_group& shm, int& w) { return give(l, shm, takes_turns, rule, w); });
        wrong += f.wrong != 0;
        overwritten += f.overwritten != 0;
      });
      CAPTURE(takes_turns);
      CAPTURE(rule);
      CHECK((wrong == 0) == rule);
      CHECK((overwritten == 0) == rule);
    }
}

}  // namespace
