#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tutti/transport/tcp/stripe.hpp>
#include <vector>

using tutti::detail::stripe_cursor;

TEST_CASE("stripe: a stripe to each connection in turn, in whatever pieces it is counted") {
  constexpr std::size_t all = 7 * stripe_cursor::stripe_bytes + 5;
  for (const int connections : {2, 3, 16})
    for (const std::size_t segment_header : {std::size_t{1000}, stripe_cursor::stripe_bytes, all}) {
      stripe_cursor at{connections};
      std::vector<std::size_t> carried(static_cast<std::size_t>(connections));
      std::size_t wrong = 0, moved = 0;
      while (moved < all) {
        wrong += at.connection() != static_cast<int>(moved / stripe_cursor::stripe_bytes) % connections;
        wrong += at.left() != stripe_cursor::stripe_bytes - moved % stripe_cursor::stripe_bytes;
        const std::size_t now = std::min({segment_header, at.left(), all - moved});
        carried[static_cast<std::size_t>(at.connection())] += now;
        moved += now;
        wrong += at.advance(now) != (moved % stripe_cursor::stripe_bytes == 0);
      }
      CHECK(wrong == 0);
      const auto [least, most] = std::minmax_element(carried.begin(), carried.end());
      CHECK(*most - *least <= stripe_cursor::stripe_bytes);
    }
}

TEST_CASE("stripe: one connection has no end") {
  stripe_cursor at{1};
  for (int i = 0; i < 3; ++i) CHECK_FALSE(at.advance(at.left()));
  CHECK((at.connection() == 0 && at.left() == SIZE_MAX));
}
