#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/layout.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// Blocks of many lengths: some empty, all empty where `longest` is 0. Either one behind the other without offsets, or
/// backwards with gaps between them.
struct cut {
  std::vector<std::size_t> counts, offsets;
  std::size_t total = 0;

  cut(std::size_t ranks, std::size_t longest, std::uint64_t salt, bool with_gaps) {
    for (std::size_t r = 0; r < ranks; ++r) counts.push_back(length(r, longest, salt));
    if (!with_gaps) {
      for (const std::size_t c : counts) total += c;
      return;
    }
    offsets.resize(ranks);
    for (std::size_t r = ranks; r-- > 0; total += counts[r] + 2) offsets[r] = total + 1;
  }
  static std::size_t length(std::size_t r, std::size_t longest, std::uint64_t salt) {
    const std::uint64_t h = mix(salt * 64 + r);
    return h % 4 == 0 ? 0 : h % 4 == 1 ? longest : longest - h % (longest + 1);
  }

  [[nodiscard]] tutti::layout layout() const {
    return offsets.empty() ? tutti::layout{counts} : tutti::layout{counts, offsets};
  }
  [[nodiscard]] std::size_t begin(std::size_t r) const { return layout().begin(r); }
  template <class T>
  [[nodiscard]] std::span<T> block(std::span<T> of, std::size_t r) const {
    return of.subspan(begin(r), counts[r]);
  }
};

/// What rank `from` has for rank `to`.
template <class T>
table<T> parcel(std::size_t count, std::uint64_t salt, std::size_t from, std::size_t to) {
  return {count, [=](std::size_t i) { return element_of<T>(i, salt * 1024 + from * 32 + to); }};
}

/// What no block covers is as guarded<T> made it.
template <class T>
void expect_gaps_untouched(const which& c, std::span<T> all, const cut& blocks) {
  std::vector<bool> covered(all.size());
  for (std::size_t r = 0; r < blocks.counts.size(); ++r)
    for (std::size_t i = 0; i < blocks.counts[r]; ++i) covered[blocks.begin(r) + i] = true;
  const guarded<T> fresh(1);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!covered[i])
      expect(std::memcmp(&all[i], fresh.span().data(), sizeof(T)) == 0, c,
             "element " + std::to_string(i) + " between the blocks was written");
}

template <class T, class World>
void check_gather(session<World>& s, std::size_t count, int root, const ways& candidates) {
  const auto me = static_cast<std::size_t>(s.world.rank());
  const bool is_root = s.world.rank() == root;
  for (const auto via : s.template algorithms<tutti::gather_args>(candidates, sizeof(T)))
    for (const bool in_place : {true, false}) {
      which c = s.name("gather", count, type_name<T>(), via);
      c.note = "root " + std::to_string(root) + (in_place ? ", in place" : "");
      const std::uint64_t salt = s.salt();
      const guarded<T> in(count, parcel<T>(count, salt, me, 0)), out(is_root ? count * s.size() : 0);
      const bool own = is_root && in_place;
      if (own) parcel<T>(count, salt, me, 0).fill(out.span().subspan(me * count, count));
      s.world.gather(own ? out.span().subspan(me * count, count) : in.span(), out.span(), root, {.via = via}).wait();
      for (std::size_t r = 0; is_root && r < s.size(); ++r)
        expect_equal(c, out.span().subspan(r * count, count), parcel<T>(count, salt, r, 0));
      expect_equal(c, in.span(), parcel<T>(count, salt, me, 0));
      expect(in.intact() && out.intact(), c, "something beside the buffers was written");
    }
}

template <class T, class World>
void check_scatter(session<World>& s, std::size_t count, int root, const ways& candidates) {
  const auto me = static_cast<std::size_t>(s.world.rank());
  const bool is_root = s.world.rank() == root;
  for (const auto via : s.template algorithms<tutti::scatter_args>(candidates, sizeof(T)))
    for (const bool in_place : {true, false}) {
      which c = s.name("scatter", count, type_name<T>(), via);
      c.note = "root " + std::to_string(root) + (in_place ? ", in place" : "");
      const std::uint64_t salt = s.salt();
      const guarded<T> in(is_root ? count * s.size() : 0), apart(count);
      for (std::size_t r = 0; is_root && r < s.size(); ++r)
        parcel<T>(count, salt, 0, r).fill(in.span().subspan(r * count, count));
      const auto out = is_root && in_place ? in.span().subspan(me * count, count) : apart.span();
      s.world.scatter(in.span(), out, root, {.via = via}).wait();
      expect_equal(c, out, parcel<T>(count, salt, 0, me));
      for (std::size_t r = 0; is_root && r < s.size(); ++r)
        expect_equal(c, in.span().subspan(r * count, count), parcel<T>(count, salt, 0, r));
      expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
    }
}

template <class T, class World>
void check_all_to_all(session<World>& s, std::size_t count, const ways& candidates) {
  const auto me = static_cast<std::size_t>(s.world.rank());
  for (const auto via : s.template algorithms<tutti::all_to_all_args>(candidates, sizeof(T)))
    for (const bool in_place : {true, false}) {
      which c = s.name("all_to_all", count, type_name<T>(), via);
      c.note = in_place ? "in place" : "out of place";
      const std::uint64_t salt = s.salt();
      const guarded<T> in(count * s.size()), apart(in_place ? 0 : count * s.size());
      for (std::size_t r = 0; r < s.size(); ++r)
        parcel<T>(count, salt, me, r).fill(in.span().subspan(r * count, count));
      const auto out = in_place ? in.span() : apart.span();
      s.world.all_to_all(in.span(), out, {.via = via}).wait();
      for (std::size_t r = 0; r < s.size(); ++r)
        expect_equal(c, out.subspan(r * count, count), parcel<T>(count, salt, r, me));
      expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
    }
}

/// `longest` block, lengths of all kinds up to it.
template <class T, class World>
void check_uneven(session<World>& s, std::size_t longest) {
  using enum tutti::algorithm;
  const auto me = static_cast<std::size_t>(s.world.rank()), n = s.size();
  for (const unsigned how : {0U, 1U, 2U, 3U}) {
    const bool gaps = how % 2 != 0, in_place = how / 2 != 0;  // the own block of the longer buffer is the shorter one
    const auto named = [&](const char* what, tutti::algorithm via) {
      which c = s.name(what, longest, type_name<T>(), via);
      c.note = std::string("at most") + (gaps ? ", with gaps" : "") + (in_place ? ", in place" : "");
      return c;
    };
    for (const auto via : s.template algorithms<tutti::all_gather_v_args>({automatic, direct, ring}, 1)) {
      const which c = named("all_gather_v", via);
      const std::uint64_t salt = s.salt();
      const cut blocks(n, longest, salt, gaps);
      const guarded<T> apart(in_place ? 0 : blocks.counts[me]), out(blocks.total);
      const auto in = in_place ? blocks.block(out.span(), me) : apart.span();
      parcel<T>(blocks.counts[me], salt, me, 0).fill(in);
      s.world.all_gather_v(in, out.span(), blocks.layout(), {.via = via}).wait();
      for (std::size_t r = 0; r < n; ++r)
        expect_equal(c, blocks.block(out.span(), r), parcel<T>(blocks.counts[r], salt, r, 0));
      expect_gaps_untouched(c, out.span(), blocks);
      expect(apart.intact() && out.intact(), c, "something beside the buffers was written");
    }
    const int root = static_cast<int>(s.salt() % n);
    const bool is_root = s.world.rank() == root;
    for (const auto via : s.template algorithms<tutti::gather_v_args>({automatic, direct, linear}, 1)) {
      const which c = named("gather_v", via);
      const std::uint64_t salt = s.salt();
      const cut blocks(n, longest, salt, gaps);
      const bool shared = in_place && is_root;
      const guarded<T> apart(shared ? 0 : blocks.counts[me]), out(is_root ? blocks.total : 0);
      const auto in = shared ? blocks.block(out.span(), me) : apart.span();
      parcel<T>(blocks.counts[me], salt, me, 0).fill(in);
      s.world.gather_v(in, out.span(), is_root ? blocks.layout() : tutti::layout{}, root, {.via = via}).wait();
      if (!is_root) continue;
      for (std::size_t r = 0; r < n; ++r)
        expect_equal(c, blocks.block(out.span(), r), parcel<T>(blocks.counts[r], salt, r, 0));
      expect_gaps_untouched(c, out.span(), blocks);
      expect(apart.intact() && out.intact(), c, "something beside the buffers was written");
    }
    for (const auto via : s.template algorithms<tutti::scatter_v_args>({automatic, direct, linear}, 1)) {
      const which c = named("scatter_v", via);
      const std::uint64_t salt = s.salt();
      const cut blocks(n, longest, salt, gaps);
      const bool shared = in_place && is_root;
      const guarded<T> in(is_root ? blocks.total : 0), apart(shared ? 0 : blocks.counts[me]);
      for (std::size_t r = 0; is_root && r < n; ++r)
        parcel<T>(blocks.counts[r], salt, 0, r).fill(blocks.block(in.span(), r));
      const auto out = shared ? blocks.block(in.span(), me) : apart.span();
      s.world.scatter_v(in.span(), out, is_root ? blocks.layout() : tutti::layout{}, root, {.via = via}).wait();
      expect_equal(c, out, parcel<T>(blocks.counts[me], salt, 0, me));
      for (std::size_t r = 0; is_root && r < n; ++r)
        expect_equal(c, blocks.block(in.span(), r), parcel<T>(blocks.counts[r], salt, 0, r));
      expect(in.intact() && apart.intact(), c, "something beside the buffers was written");
    }
    if (in_place) continue;
    for (const auto via : s.template algorithms<tutti::all_to_all_v_args>({automatic, direct, pairwise}, 1)) {
      const which c = named("all_to_all_v", via);
      const std::uint64_t salt = s.salt();
      cut to(n, longest, salt * n + me, gaps), from(n, 0, 0, false);
      for (std::size_t r = 0; r < n; ++r) {
        from.counts[r] = cut::length(me, longest, salt * n + r);
        from.total += from.counts[r];
      }
      const guarded<T> in(to.total), out(from.total);
      for (std::size_t r = 0; r < n; ++r) parcel<T>(to.counts[r], salt, me, r).fill(to.block(in.span(), r));
      s.world.all_to_all_v(in.span(), to.layout(), out.span(), from.layout(), {.via = via}).wait();
      for (std::size_t r = 0; r < n; ++r)
        expect_equal(c, from.block(out.span(), r), parcel<T>(from.counts[r], salt, r, me));
      expect(in.intact() && out.intact(), c, "something beside the buffers was written");
    }
  }
}

/// Of equal blocks, to and from one rank.
template <class T, class World>
void check_rooted(session<World>& s, std::size_t count, int root) {
  using enum tutti::algorithm;
  const ways rooted{automatic, direct, linear, tree};
  check_gather<T>(s, count, root, rooted);
  check_scatter<T>(s, count, root, rooted);
}

/// Each case takes the next dtype, and worlds of other sizes begin with others: over worlds of 2 to 9 ranks every dtype
/// goes through every collective, in no more cases than a few would need.
template <class World>
void check_distribution(session<World>& s) {
  using enum tutti::algorithm;
  const ways all{automatic, direct, pairwise};
  constexpr std::size_t others = 2;
  std::size_t rooted_turn = s.size(), turn = 2 * others * s.size();   // two counts are the fewest of a world
  for (const std::size_t count : s.counts({7, 1, 0, 1000, 65537})) {  // no grid but the full one takes the empty one
    for (int root = 0; root < s.world.size(); ++root)
      if (count < 65537 || root == s.world.size() - 1)
        for_one(every_dtype{}, rooted_turn++, [&]<class T>() { check_rooted<T>(s, count, root); });
    for (std::size_t i = 0; i < others; ++i)
      for_one(every_dtype{}, turn++, [&]<class T>() {
        check_rooted<T>(s, count, static_cast<int>(count % s.size()));
        check_all_to_all<T>(s, count, all);
        check_uneven<T>(s, count);
      });
  }
  check_rooted<double>(s, 100000, 0);  // several slots, and more than travels unasked
  check_all_to_all<page>(s, 20, all);
  check_uneven<page>(s, 20);
}

}  // namespace conformance
