#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <tutti/core/layout.hpp>

#include <conformance/large.hpp>

namespace conformance {

/// Two ranks, and of each collective one call whose buffer, or block, holds more elements than an int can count. In
/// place, so that each rank has 2 GiB. What went where is seen at both ends of each MiB.
template <class World>
class large_blocks {
 public:
  explicit large_blocks(World& world)
      : s_{world}, me_(static_cast<std::size_t>(world.rank())), memory_(2 * half), all_(memory_.span()) {}

  /// What moves; `broadcasts` is the algorithm that these are asked for, and so on.
  void check_moves(tutti::algorithm broadcasts, tutti::algorithm gathers, tutti::algorithm rooted,
                   tutti::algorithm exchanges) {
    auto& world = s_.world;
    const bool first = me_ == 0;
    run("broadcast", broadcasts, [&](auto how) {
      put(all_, 0);
      world.broadcast(all_, 1, how).wait();
      expect_put(all_, 0, 1);
    });
    run("all_gather", gathers, [&](auto how) {
      put(own(), me_ * half);
      world.all_gather(own(), all_, how).wait();
      expect_gathered(half);
    });
    run("all_gather_v", gathers, [&](auto how) {
      put(part(me_), me_ * most);
      world.all_gather_v(part(me_), all_, blocks(), how).wait();
      expect_gathered(most);
    });
    run("gather", rooted, [&](auto how) {
      put(own(), me_ * half);
      world.gather(own(), all_, 0, how).wait();
      if (first) expect_gathered(half);
    });
    run("gather_v", rooted, [&](auto how) {  // the long block is that of a rank that is not the root
      const auto mine = first ? all_.last(2 * half - most) : all_.first(most);
      put(mine, first ? most : 0);
      const std::array<std::size_t, 2> counts{2 * half - most, most}, places{most, 0};
      world.gather_v(mine, all_, tutti::layout{counts, places}, 0, how).wait();
      if (!first) return;
      expect_put(all_.first(most), 0, 1);
      expect_put(all_.last(2 * half - most), most, 0);
    });
    run("scatter", rooted, [&](auto how) {
      put(all_, 0);
      world.scatter(all_, own(), 0, how).wait();
      expect_put(own(), me_ * half, 0);
    });
    run("scatter_v", rooted, [&](auto how) {  // as above
      put(all_, 0);
      const auto mine = part(1 - me_);
      world.scatter_v(all_, first ? mine : all_.first(most), reversed(), 0, how).wait();
      expect_put(first ? mine : all_.first(most), first ? most : 0, 0);
    });
    run("all_to_all", exchanges, [&](auto how) {
      put(all_, 0);
      world.all_to_all(all_, all_, how).wait();
      for (std::size_t r = 0; r < 2; ++r) expect_put(all_.subspan(r * half, half), me_ * half, r);
    });
    run("all_to_all_v", exchanges, [&](auto how) {  // everything to rank 1
      put(all_, 0);
      const std::array<std::size_t, 2> everything{0, most}, nothing{0, 0}, from_first{most, 0};
      if (first)
        world.all_to_all_v(all_.first(most), tutti::layout{everything}, all_.first(0), tutti::layout{nothing}, how)
            .wait();
      else
        world.all_to_all_v(all_.first(0), tutti::layout{nothing}, all_.first(most), tutti::layout{from_first}, how)
            .wait();
      if (!first) expect_put(all_.first(most), 0, 0);
    });
    run("send and recv", tutti::algorithm::automatic, [&](auto) {
      put(all_, 0);
      if (first)
        world.send(all_, 1).wait();
      else
        world.recv(all_, 0).wait();
      if (!first) expect_put(all_, 0, 0);
    });
  }

  /// What reduces, by sums of bytes.
  void check_reductions(tutti::algorithm scatters, tutti::algorithm reduces, tutti::algorithm scans) {
    auto& world = s_.world;
    const auto sum = [](std::size_t i) { return static_cast<std::uint8_t>(value(i, 0) + value(i, 1)); };
    run("reduce_scatter", scatters, [&](auto how) {
      put(all_, 0);
      world.reduce_scatter(all_, own(), tutti::sum, how).wait();
      expect_all(own(), [&](std::size_t i) { return sum(me_ * half + i); });
    });
    run("reduce_scatter_v", scatters, [&](auto how) {
      put(all_, 0);
      world.reduce_scatter_v(all_, part(me_), blocks(), tutti::sum, how).wait();
      expect_all(part(me_), [&](std::size_t i) { return sum(me_ * most + i); });
    });
    run("reduce", reduces, [&](auto how) {
      put(all_, 0);
      world.reduce(all_, all_, 1, tutti::sum, how).wait();
      if (me_ == 1) expect_all(all_, sum);
    });
    run("scan", scans, [&](auto how) {
      put(all_, 0);
      world.scan(all_, all_, tutti::sum, how).wait();
      expect_all(all_, [&](std::size_t i) { return me_ == 0 ? value(i, 0) : sum(i); });
    });
    run("all_reduce_coalesced", tutti::algorithm::automatic, [&](auto) {
      put(all_, 0);
      const std::array<std::span<std::uint8_t>, 2> list{all_.first(3), all_.subspan(3)};
      world.all_reduce_coalesced(list, tutti::sum).wait();
      expect_all(all_, sum);
    });
  }

 private:
  static constexpr std::size_t half = (std::size_t{1} << 30) + 2, most = (std::size_t{1} << 31) + 1;
  static constexpr std::size_t stretch = std::size_t{1} << 20;
  static constexpr std::array<std::size_t, 2> uneven{most, 2 * half - most}, uneven_reversed{2 * half - most, most},
      reversed_places{most, 0};

  /// The element at place i of what a rank puts, the same for a stretch.
  static std::uint8_t value(std::size_t i, std::size_t rank) noexcept {
    return static_cast<std::uint8_t>(mix(i / stretch + (rank == 0 ? 0 : std::uint64_t{1} << 40)));
  }
  static tutti::layout blocks() noexcept { return tutti::layout{uneven}; }
  static tutti::layout reversed() noexcept { return tutti::layout{uneven_reversed, reversed_places}; }
  std::span<std::uint8_t> own() const noexcept { return all_.subspan(me_ * half, half); }
  std::span<std::uint8_t> part(std::size_t r) const noexcept {
    return r == 0 ? all_.first(most) : all_.last(2 * half - most);
  }

  /// This rank's elements from place `from` on.
  void put(std::span<std::uint8_t> to, std::size_t from) const {
    for (std::size_t i = 0, n = 0; i < to.size(); i += n) {
      n = std::min(stretch - (from + i) % stretch, to.size() - i);
      std::memset(to.data() + i, value(from + i, me_), n);
    }
  }
  template <class Expected>
  void expect_all(std::span<const std::uint8_t> got, const Expected& expected) const {
    const auto look = [&](std::size_t i) {
      if (got[i] != expected(i)) fail(now_, "element " + std::to_string(i) + " is " + std::to_string(got[i]));
    };
    for (std::size_t i = 0; i < got.size(); i += stretch / 2) look(i), look(std::min(i + stretch / 2, got.size()) - 1);
  }
  void expect_put(std::span<const std::uint8_t> got, std::size_t from, std::size_t rank) const {
    expect_all(got, [&](std::size_t i) { return value(from + i, rank); });
  }
  void expect_gathered(std::size_t first) const {
    expect_put(all_.first(first), 0, 0);
    expect_put(all_.subspan(first), first, 1);
  }
  template <class Check>
  void run(const char* collective, tutti::algorithm via, Check check) {
    now_ = s_.name(collective, all_.size(), "uint8", via);
    check(tutti::call_options{.via = via});
  }

  session<World> s_;
  std::size_t me_;
  large_pages memory_;
  std::span<std::uint8_t> all_;
  which now_;
};

}  // namespace conformance
