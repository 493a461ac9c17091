#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <tutti/grad/summation_tree.hpp>
#include <utility>
#include <vector>

using namespace tutti::grad;

TEST_CASE("summation tree: parts are in a row, complete, and differ by one at most") {
  for (std::size_t count = 0; count <= 40; ++count)
    for (std::size_t parts = 1; parts <= 9; ++parts)
      for (std::size_t p = 0, at = 0; p < parts; ++p) {
        const number_range mine = part_of(count, p, parts);
        CHECK(mine.first == at);
        CHECK((mine.size() == count / parts || mine.size() == (count + parts - 1) / parts));
        CHECK(mine.empty() == (mine.size() == 0));
        at = mine.end;
        CHECK((p + 1 < parts || at == count));
      }
}

TEST_CASE("summation tree: a range is as few nodes as can be, in order") {
  for (std::size_t first = 0; first <= 40; ++first)
    for (std::size_t end = first; end <= 80; ++end) {
      std::size_t at = first, most = 0;
      const auto nodes = nodes_of({first, end});
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        const auto& n = nodes[i];
        if (n.index << n.level != at || (i > 0 && nodes[i - 1].completed_by(n))) FAIL("a gap, or two halves");
        at += std::size_t{1} << n.level;
      }
      if (at != end) FAIL("not all of it");
      while ((std::size_t{2} << most) <= end - first + 1) ++most;
      if (nodes.size() > 2 * (most + 1)) FAIL("too many");
    }
  CHECK(nodes_of({3, 9}) == std::vector<tree_node>{{0, 3}, {2, 1}, {0, 8}});
}

TEST_CASE("summation tree: what join() puts together is in the order of the numbers, whoever begins where") {
  for (const std::size_t middle : {0u, 1u, 3u, 4u, 6u, 8u, 11u}) {
    // Two ranks' nodes, each with the text of its sum; the second rank's are appended to the first's.
    const auto sums = [](number_range numbers) {
      std::vector<tree_node> nodes;
      std::vector<std::string> texts;
      for (std::size_t i = numbers.first; i < numbers.end; ++i) {
        texts.push_back(std::to_string(i));
        append(nodes, {0, i}, [&](std::size_t left, std::size_t right) {
          texts[left] = "(" + texts[left] + " " + texts[right] + ")";
        });
        texts.resize(nodes.size());
      }
      return std::pair{nodes, texts};
    };
    auto [nodes, texts] = sums({0, middle});
    const auto [theirs, said] = sums({middle, 11});
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      texts.push_back(said[i]);
      append(nodes, theirs[i],
             [&](std::size_t left, std::size_t right) { texts[left] = "(" + texts[left] + " " + texts[right] + ")"; });
      texts.resize(nodes.size());
    }
    CHECK(texts == std::vector<std::string>{"(((0 1) (2 3)) ((4 5) (6 7)))", "(8 9)", "10"});
  }
}
