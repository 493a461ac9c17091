#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/backend/composed.hpp>
#include <tutti/communicator.hpp>

#include <support/words.hpp>

#include "transport/tcp_world.hpp"

// Ranks that reach each other by messages and ask for different algorithms.

namespace {

using tutti::algorithm;
using tutti_test::contains;

using tcp = tutti::composed<tutti::tcp_transport>;

/// What each rank is told of an all_reduce, which the last one asks for by `odd`.
std::vector<std::string> told(int size, algorithm usual, algorithm odd) {
  tcp_world::plan p{size};
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      auto home = std::make_shared<tutti::engine>();
      auto d = std::make_shared<tutti::driver<tutti::tcp_transport>>(home, p.transport(r));
      tutti::communicator<tcp> world{tcp{std::move(d)}, std::move(home), std::chrono::seconds(20)};
      said[static_cast<std::size_t>(r)] = tutti_test::words_of<tutti::error>([&] {
        std::vector<float> v(4096);
        world.all_reduce(v, tutti::sum, {.via = r == size - 1 ? odd : usual}).wait();
        world.barrier().wait();
      });
    });
  for (std::thread& t : threads) t.join();
  return said;
}

TEST_CASE("odd algorithm: ranks whose messages do not meet are told which they asked for") {
  for (const int size : {2, 4})
    for (const std::string& text : told(size, algorithm::ring, algorithm::recursive_doubling)) {
      CAPTURE(text);
      CHECK(contains(text, " called all_reduce #1 (float32, by ring)"));
      CHECK(contains(text, " called all_reduce #1 (float32, by recursive_doubling)"));
    }
}

TEST_CASE("odd algorithm: ranks whose messages meet are told that the algorithm may be what differs") {
  for (const auto& [usual, odd] : {std::pair{algorithm::recursive_doubling, algorithm::ring},
                                   std::pair{algorithm::recursive_doubling, algorithm::halving_doubling}})
    for (const std::string& text : told(3, usual, odd)) {
      CAPTURE(text);
      CHECK(contains(text, "all_reduce #1 (float32"));
      CHECK((contains(text, "algorithm") || contains(text, ", by ")));
    }
}

}  // namespace
