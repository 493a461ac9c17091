#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/core/args.hpp>
#include <tutti/core/layout.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

/// Exchange of a block from every rank to every other, by the algorithms that do so; `make(link, group, args)` is one.
namespace parcels {

inline const std::vector<int> worlds = tutti_test::grid<int>({1, 2, 3, 5, 8, 9}, {2, 5});
// Within a part of a slot, several slots, several segments.
inline const std::vector<std::size_t> counts = tutti_test::grid<std::size_t>({0, 1, 1000, 100001}, {0, 1000, 100001});

inline std::uint32_t element(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from * 1000 + to) * 65537U + static_cast<std::uint32_t>(i);
}

/// Blocks of many lengths with gaps between them: one is empty, one has nearly all.
struct uneven {
  std::vector<std::size_t> lengths, offsets;
  std::size_t total = 0;

  uneven(std::size_t n, std::size_t most) : lengths(n), offsets(n) {
    for (std::size_t r = 0; r < n; ++r) {
      lengths[r] = r == 1 ? 0 : r == 0 ? most : r;
      offsets[r] = total + 3;
      total = offsets[r] + lengths[r];
    }
  }
  [[nodiscard]] tutti::layout layout() const { return {lengths, offsets}; }
  /// The block that element i lies in; -1 between blocks.
  [[nodiscard]] int owner(std::size_t i) const {
    for (std::size_t r = 0; r < lengths.size(); ++r)
      if (i >= offsets[r] && i < offsets[r] + lengths[r]) return static_cast<int>(r);
    return -1;
  }
};

template <tutti::transport T, class Make>
void check_gather(Make make) {
  for (const int size : worlds)
    links::run<T>(size, [&](auto& me) {
      const auto n = static_cast<std::size_t>(me.size());
      for (const std::size_t count : counts)
        for (int root = 0; root < me.size(); root += 3) {
          const bool is_root = me.number() == root;
          std::vector<std::uint32_t> part(count), whole(is_root ? n * count : 0);
          for (std::size_t i = 0; i < count; ++i) part[i] = element(me.number(), root, i);
          const tutti::gather_args a{links::in(part), is_root ? links::out(whole) : tutti::buffer{},
                                     tutti::layout::of_equal(count), root};
          me.run([&](auto link) { return make(link, me.shm_group(), a); });
          for (std::size_t k = 0; k < whole.size(); ++k)
            links::expect(whole[k] == element(static_cast<int>(k / count), root, k % count), "element", k);
        }
    });
}

template <tutti::transport T, class Make>
void check_scatter(Make make) {
  for (const int size : worlds)
    links::run<T>(size, [&](auto& me) {
      const auto n = static_cast<std::size_t>(me.size());
      for (const std::size_t count : counts)
        for (int root = 0; root < me.size(); root += 3) {
          const bool is_root = me.number() == root;
          std::vector<std::uint32_t> part(count), whole(is_root ? n * count : 0);
          for (std::size_t k = 0; k < whole.size(); ++k)
            whole[k] = element(root, static_cast<int>(k / count), k % count);
          const tutti::scatter_args a{is_root ? links::in(whole) : tutti::const_buffer{}, links::out(part),
                                      tutti::layout::of_equal(count), root};
          me.run([&](auto link) { return make(link, me.shm_group(), a); });
          for (std::size_t i = 0; i < count; ++i) links::expect(part[i] == element(root, me.number(), i), "element", i);
        }
    });
}

/// Lengths that the root alone knows.
template <tutti::transport T, class Gather, class Scatter>
void check_uneven_rooted(Gather gather, Scatter scatter) {
  for (const int size : worlds)
    links::run<T>(size, [&](auto& me) {
      const int root = me.size() - 1;
      const uneven cut{static_cast<std::size_t>(me.size()), 70001};
      const bool is_root = me.number() == root;
      std::vector<std::uint32_t> whole(is_root ? cut.total : 0, 7),
          mine(cut.lengths[static_cast<std::size_t>(me.number())]);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = element(me.number(), root, i);
      const auto known = is_root ? cut.layout() : tutti::layout{};
      const auto expect_blocks = [&] {
        for (std::size_t i = 0; i < whole.size(); ++i) {
          const int r = cut.owner(i);
          links::expect(whole[i] == (r < 0 ? 7 : element(r, root, i - cut.offsets[static_cast<std::size_t>(r)])),
                        "element", i);
        }
      };
      const tutti::gather_args up{links::in(mine), is_root ? links::out(whole) : tutti::buffer{}, known, root};
      me.run([&](auto link) { return gather(link, me.shm_group(), up); });
      expect_blocks();
      std::vector<std::uint32_t> back(mine.size());
      const tutti::scatter_args down{is_root ? links::in(whole) : tutti::const_buffer{}, links::out(back), known, root};
      me.run([&](auto link) { return scatter(link, me.shm_group(), down); });
      links::expect(back == mine, "what came back is not what went there");
      expect_blocks();
    });
}

template <tutti::transport T, class Make>
void check_all_to_all(Make make) {
  for (const int size : worlds)
    links::run<T>(size, [&](auto& me) {
      const auto n = static_cast<std::size_t>(me.size());
      std::vector<std::size_t> every = counts;
      if (n == 2) every.push_back(600001);  // long chunks
      enum class rank_is { apart, in_place, as_it_likes };
      for (const std::size_t count : every)
        for (const rank_is how : {rank_is::apart, rank_is::in_place, rank_is::as_it_likes}) {
          const bool in_place = how == rank_is::in_place || (how == rank_is::as_it_likes && me.number() % 2 == 0);
          std::vector<std::uint32_t> in(n * count), apart(in_place ? 0 : n * count);
          for (std::size_t k = 0; k < in.size(); ++k)
            in[k] = element(me.number(), static_cast<int>(k / count), k % count);
          auto& out = in_place ? in : apart;
          const tutti::all_to_all_args a{links::in(in), links::out(out), tutti::layout::of_equal(count),
                                         tutti::layout::of_equal(count)};
          me.run([&](auto link) { return make(link, me.shm_group(), a); });
          for (std::size_t k = 0; k < out.size(); ++k)
            links::expect(out[k] == element(static_cast<int>(k / count), me.number(), k % count), "element", k);
        }
      // Rank r has (r + to) % n * 5000 elements for each.
      std::vector<std::size_t> lengths(n);
      for (std::size_t r = 0; r < n; ++r) lengths[r] = (static_cast<std::size_t>(me.number()) + r) % n * 5000;
      std::vector<std::uint32_t> in, out(n * (n - 1) / 2 * 5000);
      for (std::size_t r = 0; r < n; ++r)
        for (std::size_t i = 0; i < lengths[r]; ++i) in.push_back(element(me.number(), static_cast<int>(r), i));
      const tutti::all_to_all_args a{links::in(in), links::out(out), lengths, lengths};
      me.run([&](auto link) { return make(link, me.shm_group(), a); });
      for (std::size_t r = 0, at = 0; r < n; at += lengths[r++])
        for (std::size_t i = 0; i < lengths[r]; ++i)
          links::expect(out[at + i] == element(static_cast<int>(r), me.number(), i), "uneven, from rank", r);
    });
}

/// Every block is folded in the order that begins with rank `first(block, size)`, and then gathered again.
template <tutti::transport T, class Reduce, class Gather, class First>
void check_uneven(Reduce reduce_scatter, Gather all_gather, First first) {
  for (const int size : worlds)
    links::run<T>(size, [&](auto& me) {
      const uneven cut{static_cast<std::size_t>(me.size()), me.size() == 2 ? 140001U : 70001U};  // long chunks of two
      const auto count = cut.lengths[static_cast<std::size_t>(me.number())];
      std::vector<links::word> in(cut.total, links::letter(me.number())), mine(count);
      const tutti::reduce_scatter_v_args down{links::in(in), links::out(mine), cut.layout(),
                                              tutti::erase_type<links::word>(links::append{})};
      me.run([&](auto link) { return reduce_scatter(link, me.shm_group(), down); });
      for (const links::word& w : mine)
        links::expect(w == links::spelled(first(me.number(), me.size()), me.size()), "another order");
      links::expect(in == std::vector<links::word>(cut.total, links::letter(me.number())), "the input was changed");
      std::vector<links::word> all(cut.total, links::letter(15)), own(count, links::letter(me.number()));
      for (std::size_t i = 0; i < count; ++i) own[i].unused = static_cast<std::uint32_t>(i);  // tells them apart
      const tutti::all_gather_v_args up{links::in(own), links::out(all), cut.layout()};
      me.run([&](auto link) { return all_gather(link, me.shm_group(), up); });
      for (std::size_t i = 0; i < all.size(); ++i) {
        const int from = cut.owner(i);
        links::word expected = links::letter(from < 0 ? 15 : from);
        if (from >= 0) expected.unused = static_cast<std::uint32_t>(i - cut.offsets[static_cast<std::size_t>(from)]);
        links::expect(all[i] == expected, "element", i);
      }
    });
}

}  // namespace parcels
