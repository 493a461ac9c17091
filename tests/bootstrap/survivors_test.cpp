#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <store/tcp_store_case.hpp>
#include <tutti/bootstrap/survivors.hpp>
#include <tutti/store/memory_store.hpp>

namespace {

using namespace tutti_test;

TEST_CASE("survivors: one list for all who are in it; who comes later is told") {
  tutti::memory_store store;
  std::vector<std::vector<int>> lists(3);
  {
    std::vector<std::jthread> ranks;
    for (const int r : {0, 2, 3})
      ranks.emplace_back([&, r] {
        const std::array known{1};
        lists[r == 0 ? 0 : static_cast<std::size_t>(r) - 1] =
            tutti::agree_on_survivors(store, r, 4, r == 2 ? std::span<const int>{} : std::span<const int>{known},
                                      tutti::after(r == 2 ? 50ms : 60s));
      });
  }
  CHECK(lists == std::vector<std::vector<int>>(3, {0, 2, 3}));
  const auto late = failure_of([&] { (void)tutti::agree_on_survivors(store, 1, 4, {}, tutti::after(60s)); });
  CHECK(late.kind == errc::rendezvous);
  CHECK(late.mentions("gone on without this one (rank 1)"));
  CHECK_THROWS_AS((void)tutti::agree_on_survivors(store, 4, 4, {}, tutti::after(1s)), tutti::usage_error);
}

TEST_CASE("survivors: over TCP, to have waited for one that is gone costs none that is there its place") {
  const running_host host;
  auto store = host.connect(0);
  for (const char* r : {"0", "2", "3"}) store.set("survivors/here/" + std::string(r), tutti::bytes_of("x"));
  for (const int r : {2, 0, 3})
    CHECK(tutti::agree_on_survivors(store, r, 4, {}, after(20ms)) == std::vector<int>{0, 2, 3});
}

}  // namespace
