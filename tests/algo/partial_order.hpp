#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include <tutti/core/args.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

/// In which order algorithms take their operands: each rank's is a letter, the result a word.
namespace partial_order {

// One element, some, and several segments or slots.
inline const std::vector<std::size_t> counts{0, 1, 5, 20000, 270001};

inline tutti::reduction appending() { return tutti::erase_type<links::word>(links::append{}); }

/// The word of ranks [0, terms).
inline links::word up_to(int terms) { return links::spelled(0, terms); }

/// `make(link, group, args)` reduces to a root; the word begins with rank `first(root)`.
template <tutti::transport T, class Make, class First>
void check_reduce(Make make, First first) {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 8, 9}, {2, 5}))
    links::run<T>(size, [&](auto& me) {
      for (int root = 0; root < me.size(); root += 2)
        for (const std::size_t count : counts)
          for (const bool in_place : {true, false}) {
            std::vector<links::word> in(count, links::letter(me.number())), out(in_place ? 0 : count);
            auto& result = in_place ? in : out;
            tutti::reduce_args a{links::in(in), me.number() == root ? links::out(result) : tutti::buffer{}, appending(),
                                 root};
            me.run([&](auto link) { return make(link, me.shm_group(), a); });
            const bool changed = me.number() == root && in_place;
            const auto own = links::letter(me.number()), spelled = links::spelled(first(root, me.size()), me.size());
            for (std::size_t i = 0; i < count; ++i) {
              links::expect(changed || in[i] == own, "an operand was changed: element", i);
              links::expect(me.number() != root || result[i] == spelled, "another order: element", i);
            }
          }
    });
}

/// The same for scans, which always take ranks in their order.
template <tutti::transport T, class Args, class Make>
void check_scan(Make make, int last) {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 8, 9}, {2, 5}))
    links::run<T>(size, [&](auto& me) {
      for (const std::size_t count : counts)
        for (const bool in_place : {true, false}) {
          std::vector<links::word> in(count, links::letter(me.number())), out(count, links::letter(14));
          auto& result = in_place ? in : out;
          const links::word before = in_place ? links::letter(me.number()) : links::letter(14);
          Args a{};
          a.in = links::in(in);
          a.out = links::out(result);
          a.op = appending();
          me.run([&](auto link) { return make(link, me.shm_group(), a); });
          const int terms = me.number() + last;
          for (std::size_t i = 0; i < count; ++i)
            links::expect(result[i] == (terms == 0 ? before : up_to(terms)), "another word at", i);
        }
    });
}

}  // namespace partial_order
