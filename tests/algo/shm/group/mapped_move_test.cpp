#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/dispatch.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/group/mapped_move.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::layout;

TEST_CASE("mapped_move: the root's share is whole lines, and leaves the others theirs") {
  using tutti::algo::detail::share_of_root;
  CHECK(share_of_root(0, 2) == 0);
  CHECK(share_of_root(127, 2) == 0);
  CHECK(share_of_root(4096, 2) == 2048);
  CHECK(share_of_root(4099, 2) == 2048);
  CHECK(share_of_root(1 << 20, 1000) == 1024);
}

/// A buffer of every rank for one operation, in memory that others map or not.
class memory {
 public:
  template <class Rank>
  memory(Rank& me, std::size_t most) : mapped_(reinterpret_cast<std::uint32_t*>(me.link().allocate(4 * most))) {
    private_.resize(most);
  }
  [[nodiscard]] std::span<std::uint32_t> of(std::size_t count, bool mapped) {
    return {mapped ? mapped_ : private_.data(), count};
  }

 private:
  std::uint32_t* mapped_;
  std::vector<std::uint32_t> private_;
};

std::uint32_t parcel(std::size_t round, std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::uint32_t>(((round * 64 + from) * 64 + to) * 65537 + i);
}
tutti::const_buffer in(std::span<const std::uint32_t> s) { return tutti::erase_type(s); }
tutti::buffer out(std::span<std::uint32_t> s) { return tutti::erase_type(s); }

/// Blocks of some lengths, in order or backwards with gaps.
struct cut {
  std::vector<std::size_t> counts, offsets;
  std::size_t total = 0;
  void arrange(bool backwards) {
    total = 0;
    offsets.clear();
    if (backwards) {
      offsets.resize(counts.size());
      for (std::size_t r = counts.size(); r-- > 0; total += counts[r] + 5) offsets[r] = total;
    } else {
      for (const std::size_t c : counts) total += c;
    }
  }
  [[nodiscard]] tutti::layout blocks() const { return offsets.empty() ? layout{counts} : layout{counts, offsets}; }
};

// All ranks draw the same numbers: which collective, its root, lengths, and whose buffers are mapped. Operations follow
// one another at once, and buffers are written again as soon as an operation has ended.
template <class Rank>
void any_collectives(Rank& me, unsigned seed) {
  constexpr std::size_t most = 160000;
  const std::size_t lengths[] = {0, 1, 1000, 1024, 4097, 30001, 70000, 150000};
  const auto n = static_cast<std::size_t>(me.size()), r = static_cast<std::size_t>(me.number());
  memory ins(me, n * most), outs(me, n * most);
  std::mt19937 draw{seed};
  const auto below = [&](std::size_t limit) { return draw() % limit; };
  for (std::size_t round = 0; round < 120; ++round) {
    const std::size_t kind = below(8), root = below(n), count = lengths[below(8)], likely = below(3);
    std::vector<bool> in_mapped(n), out_mapped(n), backwards(n);
    for (std::size_t q = 0; q < n; ++q) {
      in_mapped[q] = likely == 2 || (likely == 1 && below(2) == 0);
      out_mapped[q] = likely == 2 || (likely == 1 && below(2) == 0);
      backwards[q] = below(2) == 0;
    }
    std::vector<std::vector<std::size_t>> table(n, std::vector<std::size_t>(n));  // from rank to rank
    for (auto& row : table)
      for (std::size_t& c : row) c = lengths[below(8)];
    const bool is_root = r == root;
    const int root_rank = static_cast<int>(root);
    const auto fill = [&](std::span<std::uint32_t> s, std::size_t from, std::size_t to) {
      for (std::size_t i = 0; i < s.size(); ++i) s[i] = parcel(round, from, to, i);
    };
    const auto check = [&](std::span<const std::uint32_t> s, std::size_t from, std::size_t to, const char* what) {
      for (std::size_t i = 0; i < s.size(); ++i) expect(s[i] == parcel(round, from, to, i), what, round);
    };
    const auto run = [&](const auto& args) {
      me.run([&](auto link) { return tutti::algo::run_shm(link, me.shm_group(), args); });
    };
    cut mine;
    if (kind == 0) {
      const auto data = outs.of(count, out_mapped[r]);
      fill(data, is_root ? root : 63, root);
      me.run([&](auto link) {
        return tutti::algo::direct_broadcast(link, me.shm_group(), tutti::broadcast_args{out(data), root_rank});
      });
      check(data, root, root, "broadcast in round");
    } else if (kind == 1) {
      const auto part = ins.of(count, in_mapped[r]), whole = outs.of(is_root ? n * count : 0, out_mapped[r]);
      fill(part, r, root);
      run(tutti::gather_args{in(part), out(whole), layout::of_equal(count), root_rank});
      for (std::size_t q = 0; is_root && q < n; ++q) check(whole.subspan(q * count, count), q, root, "gather in round");
    } else if (kind == 2) {
      for (std::size_t q = 0; q < n; ++q) mine.counts.push_back(table[q][root]);
      mine.arrange(backwards[r]);
      const auto part = ins.of(mine.counts[r], in_mapped[r]), whole = outs.of(is_root ? mine.total : 0, out_mapped[r]);
      fill(part, r, root);
      run(tutti::gather_v_args{{in(part), out(whole), mine.blocks(), root_rank}});
      for (std::size_t q = 0; is_root && q < n; ++q)
        check(whole.subspan(mine.blocks().begin(q), mine.counts[q]), q, root, "gather_v in round");
    } else if (kind == 3) {
      const auto part = outs.of(count, out_mapped[r]), whole = ins.of(is_root ? n * count : 0, in_mapped[r]);
      for (std::size_t q = 0; is_root && q < n; ++q) fill(whole.subspan(q * count, count), root, q);
      run(tutti::scatter_args{in(whole), out(part), layout::of_equal(count), root_rank});
      check(part, root, r, "scatter in round");
    } else if (kind == 4) {
      mine.counts = table[root];
      mine.arrange(backwards[r]);
      const auto part = outs.of(mine.counts[r], out_mapped[r]), whole = ins.of(is_root ? mine.total : 0, in_mapped[r]);
      for (std::size_t q = 0; is_root && q < n; ++q)
        fill(whole.subspan(mine.blocks().begin(q), mine.counts[q]), root, q);
      run(tutti::scatter_v_args{{in(whole), out(part), mine.blocks(), root_rank}});
      check(part, root, r, "scatter_v in round");
    } else if (kind == 5) {
      cut theirs;
      mine.counts = table[r];
      for (std::size_t q = 0; q < n; ++q) theirs.counts.push_back(table[q][r]);
      mine.arrange(backwards[r]);
      theirs.arrange(backwards[(r + 1) % n]);
      const auto from = ins.of(mine.total, in_mapped[r]), to = outs.of(theirs.total, out_mapped[r]);
      for (std::size_t q = 0; q < n; ++q) fill(from.subspan(mine.blocks().begin(q), mine.counts[q]), r, q);
      run(tutti::all_to_all_v_args{{in(from), out(to), mine.blocks(), theirs.blocks()}});
      for (std::size_t q = 0; q < n; ++q)
        check(to.subspan(theirs.blocks().begin(q), theirs.counts[q]), q, r, "all_to_all_v in round");
    } else if (kind == 6) {
      mine.counts = table[0];
      mine.arrange(backwards[r]);
      const auto part = ins.of(mine.counts[r], in_mapped[r]), whole = outs.of(mine.total, out_mapped[r]);
      fill(part, r, 0);
      run(tutti::all_gather_v_args{in(part), out(whole), mine.blocks()});
      for (std::size_t q = 0; q < n; ++q)
        check(whole.subspan(mine.blocks().begin(q), mine.counts[q]), q, 0, "all_gather_v in round");
    } else {
      mine.counts = table[0];
      mine.arrange(backwards[r] && likely != 2);
      const auto whole = ins.of(mine.total, in_mapped[r]), part = outs.of(mine.counts[r], out_mapped[r]);
      for (std::size_t q = 0; q < n; ++q) fill(whole.subspan(mine.blocks().begin(q), mine.counts[q]), r, q);
      run(tutti::reduce_scatter_v_args{in(whole), out(part), mine.blocks(),
                                       tutti::erase_type<std::uint32_t>(tutti::sum)});
      for (std::size_t i = 0; i < part.size(); ++i) {
        std::uint32_t sum_of_all = 0;
        for (std::size_t q = 0; q < n; ++q) sum_of_all += parcel(round, q, r, i);
        expect(part[i] == sum_of_all, "reduce_scatter_v in round", round);
      }
      const auto data = outs.of(count, out_mapped[r]), operand = ins.of(count, in_mapped[r]);
      fill(operand, r, 0);
      run(tutti::scan_args{in(operand), out(data), tutti::erase_type<std::uint32_t>(tutti::sum)});
      for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t sum_to_me = 0;
        for (std::size_t q = 0; q <= r; ++q) sum_to_me += parcel(round, q, 0, i);
        expect(data[i] == sum_to_me, "scan in round", round);
      }
    }
  }
}

TEST_CASE("mapped_move: whoever's buffers are mapped, every collective moves the same bytes") {
  for (const int size : {2, 3, 5})
    for (const unsigned seed : {1U, 2U, 3U}) {
      CAPTURE(size);
      CAPTURE(seed);
      links::run<links::staging_transport>(size, [seed](auto& me) { any_collectives(me, seed); });
    }
}

}  // namespace
