#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;

template <class T>
tutti::routine take_turn(tutti::group_link<T> l, shm_group& shm, std::vector<int>& order, int id, int steps) {
  shm_group::ticket turn{shm, l.link()};
  co_await turn;
  order.push_back(id);
  if (!shm.is_open()) co_await shm.open(l);
  for (int i = 0; i < steps; ++i) {
    const std::uint64_t step = shm.post(l.link());
    co_await shm_group::posted_by{shm, l.link(), 0, l.size(), step};
  }
  order.push_back(id);
}

TEST_CASE("shm_group: operations take turns in the order of their issue, whatever they are waited for in") {
  links::run(3, [](auto& me) {
    std::vector<int> order;
    std::vector<tutti::op> running;
    for (int id = 0; id < 20; ++id)
      running.push_back(me.start([&](auto l) { return take_turn(l, me.shm_group(), order, id, id % 4); }));
    while (!running.empty()) {
      running.back().wait();
      running.pop_back();
    }
    expect(order.size() == 40, "not all of them had their turn");
    for (std::size_t i = 0; i < 40; ++i) expect(order[i] == static_cast<int>(i / 2), "turns were mixed up");
  });
}

TEST_CASE("shm_group: slots and notes of neighbouring steps are apart") {
  links::run(4, [](auto& me) {
    shm_group& shm = me.shm_group();
    me.run([&](auto l) {
      return [](auto link, shm_group& on) -> tutti::routine {
        shm_group::ticket turn{on, link.link()};
        co_await turn;
        expect(!on.is_open(), "open before anybody opened it");
        co_await on.open(link);
        for (std::uint64_t i = 1; i <= 100; ++i) {
          const std::uint64_t step = on.step() + 1;
          co_await shm_group::posted_by{on, link.link(), 0, link.size(), step - 1};
          std::byte* mine = on.slot(link.rank(), step);
          mine[0] = static_cast<std::byte>(i);
          mine[shm_group::slot_bytes - 1] = static_cast<std::byte>(i + 1);
          on.post(link.link(), {i, i * 2});
          co_await shm_group::posted_by{on, link.link(), 0, link.size(), step};
          for (int r = 0; r < link.size(); ++r) {
            expect(on.slot(r, step)[0] == static_cast<std::byte>(i) &&
                       on.slot(r, step)[shm_group::slot_bytes - 1] == static_cast<std::byte>(i + 1),
                   "the slot of rank " + std::to_string(r) + " in step " + std::to_string(step));
            expect(on.descriptor_of(r, step).in == i && on.descriptor_of(r, step).out == i * 2, "another note");
          }
        }
      }(l, shm);
    });
    expect(shm.is_open() && shm.step() == 100, "it is at step", shm.step());
  });
}

/// Has no memory that peers could map.
template <bool Error>
class poor_transport : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if (rank() != 1) return threads_transport::allocate(bytes);
    if constexpr (Error) throw tutti::error{{tutti::errc::out_of_resources}, "full"};
    throw std::bad_alloc{};
  }
};

TEST_CASE_TEMPLATE("shm_group: a rank without memory for it fails the operation everywhere", T, poor_transport<true>,
                   poor_transport<false>) {
  std::vector<tutti::errc> seen(3);
  links::run<T>(3, [&](auto& me) {
    auto running = me.start([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    seen[static_cast<std::size_t>(me.number())] = tutti::nothrow(std::move(running)).wait().code;
  });
  for (const auto code : seen) CHECK(code == tutti::errc::out_of_resources);
}

TEST_CASE("shm_group: who is missing is known by name") {
  int blamed = -1;
  std::atomic<bool> over{false}, there{false};
  links::run(3, [&](auto& me) {
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    if (me.number() == 2) {
      while (!over) std::this_thread::yield();
      return;
    }
    while (me.number() == 0 && !there) std::this_thread::yield();
    auto running = me.start([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); },
                            me.number() == 0 ? std::chrono::milliseconds(50) : std::chrono::seconds(60));
    there = true;
    const auto s = tutti::nothrow(std::move(running)).wait();
    if (me.number() == 0) {
      blamed = s.peer;
      over = true;
    }
    expect(s.code == tutti::errc::timed_out, "it did not time out");
  });
  CHECK(blamed == 2);
}

}  // namespace
