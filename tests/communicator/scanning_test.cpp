#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using ranks::contains;
using ranks::expect;

TEST_CASE("scanning: counts fit, and buffers are the same or apart, before anything is sent") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<float> six(6), two(2);
  const std::span all{six};
  CHECK(complaint([&] { world.scan(six, two).wait(); }) == "scan on rank 1: in is 6 elements but out is 2");
  CHECK(complaint([&] { world.exclusive_scan(six, two).wait(); }) ==
        "exclusive_scan on rank 1: in is 6 elements but out is 2");
  CHECK(contains(complaint([&] { world.scan(all.first(4), all.last(4)).wait(); }), "overlap"));
  CHECK(contains(complaint([&] { world.exclusive_scan(all.first(4), all.last(4)).wait(); }), "overlap"));
}

TEST_CASE("scanning: each rank has what it and those below it have, in rank order") {
  tutti::run_threads(4, [](auto& w) {
    std::vector<int> v{w.rank() + 1, 10};
    std::vector<int> out(2);
    w.scan(v, out).wait();
    expect(out == std::vector<int>{(w.rank() + 1) * (w.rank() + 2) / 2, 10 * (w.rank() + 1)}, "sums");
    w.scan(v, tutti::max).wait();
    expect(v == std::vector<int>{w.rank() + 1, 10}, "maxima, in place");
    std::vector<double> means{2.0 * w.rank()};
    w.scan(means, tutti::mean).wait();
    expect(means[0] == w.rank(), "the mean is that of the ranks so far");
  });
}

TEST_CASE("scanning: of an exclusive scan rank 0 keeps what it had") {
  tutti::run_threads(3, [](auto& w) {
    std::vector<int> v{w.rank() + 5, 1}, out{-1, -2};
    w.exclusive_scan(v, out).wait();
    expect(w.rank() != 0 || out == std::vector<int>{-1, -2}, "rank 0's out was written");
    expect(w.rank() != 2 || out == std::vector<int>{11, 2}, "rank 2's sum");
    expect(w.exclusive_scan(4).wait() == 4 * w.rank(), "by value");
    expect(w.scan(2.5, tutti::max).wait() == 2.5, "by value");
  });
}

}  // namespace
