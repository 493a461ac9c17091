#include <doctest/doctest.h>

#include <cstdint>
#include <deque>

#include <tutti/core/hash.hpp>
#include <tutti/transport/messaging/frame_queue.hpp>

namespace {

using tutti::detail::frame;
using tutti::detail::frame_queue;

TEST_CASE("frame_queue: frames leave in the order of a deque, whatever is put at either end") {
  frame_queue queue;
  std::deque<std::uint64_t> wanted;
  std::uint64_t next = 0;
  CHECK(queue.empty());
  for (int i = 0; i < 5000; ++i) {
    const auto what = tutti::detail::splitmix(static_cast<std::uint64_t>(i)) % 16;
    if (what < 7) {
      queue.push_back({frame::kind::ready, ++next});
      wanted.push_back(next);
    } else if (what < 8) {
      queue.push_front({frame::kind::bye, ++next});
      wanted.push_front(next);
    } else if (!wanted.empty()) {
      REQUIRE(queue.pop_front().tag == wanted.front());
      wanted.pop_front();
    }
    REQUIRE(queue.empty() == wanted.empty());
  }
  queue.push_back({frame::kind::ready, 1});
  queue.clear();
  CHECK(queue.empty());
}

}  // namespace
