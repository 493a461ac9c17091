#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/message/tree_place.hpp>

namespace {

using tutti::algo::detail::tree_place;

TEST_CASE("tree_place: everyone hangs below the root once, in contiguous numbers") {
  for (int n = 1; n <= 17; ++n)
    for (int root = 0; root < n; ++root) {
      CAPTURE(n);
      CAPTURE(root);
      int levels = 0;
      for (int all = 1; all < n; all *= 2) ++levels;
      std::vector<int> parents(static_cast<std::size_t>(n), -1);
      for (int rank = 0; rank < n; ++rank) {
        const tree_place here(n, root, rank);
        CAPTURE(rank);
        CHECK(here.rank_of(here.me) == rank);
        CHECK((here.me == 0) == (rank == root));
        // Children are on the bits below the own one; with them, all numbers up to the next at this height.
        std::size_t under = 1;
        bool any = false;
        for (int mask = 1; mask < here.lowest() && here.me + mask < n; mask *= 2) {
          const tree_place child(n, root, here.rank_of(here.me + mask));
          CHECK(child.lowest() == mask);
          CHECK(child.parent() == rank);
          int& parent = parents[static_cast<std::size_t>(here.rank_of(here.me + mask))];
          CHECK(parent == -1);
          parent = rank;
          under += here.below(here.me + mask, mask);
          any = true;
        }
        CHECK(under == here.below(here.me, here.lowest()));
        CHECK(here.leaf() == (!any && rank != root));
        int height = 0;
        for (int at = rank; at != root && height <= levels; ++height) at = tree_place(n, root, at).parent();
        CHECK(height <= levels);
      }
      CHECK(tree_place(n, root, root).below(0, tree_place(n, root, root).lowest()) == static_cast<std::size_t>(n));
      for (int rank = 0; rank < n; ++rank) CHECK((parents[static_cast<std::size_t>(rank)] == -1) == (rank == root));
    }
}

}  // namespace
