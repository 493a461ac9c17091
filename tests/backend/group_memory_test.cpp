#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/algo/shm/group/retire_list.hpp>
#include <tutti/backend/composed.hpp>
#include <tutti/communicator.hpp>
#include <tutti/transport/threads.hpp>

#include <support/expect.hpp>
#include <support/on_threads.hpp>

namespace {

using tutti::algo::shm_group;

/// Counts the bytes that this rank has of its transport.
class counting_transport : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    std::byte* p = threads_transport::allocate(bytes);
    sizes_[p] = bytes;
    held_ += bytes;
    return p;
  }
  void deallocate(std::byte* p) noexcept {
    held_ -= sizes_[p];
    sizes_.erase(p);
    threads_transport::deallocate(p);
  }
  [[nodiscard]] std::size_t held() const noexcept { return held_; }

 private:
  std::map<std::byte*, std::size_t> sizes_;
  std::size_t held_ = 0;
};

using backend = tutti::composed<counting_transport>;
using world = tutti::communicator<backend>;

using tutti_test::expect;

std::size_t held(world& w) {
  auto guard = w.engine().lock();
  return w.backend().shared_driver()->link().held();
}

world world_of(const std::shared_ptr<tutti::threads_hub>& hub, int rank) {
  auto home = std::make_shared<tutti::engine>();
  auto d = std::make_shared<tutti::driver<counting_transport>>(home, std::make_unique<counting_transport>(hub, rank));
  return world{backend{d}, home, std::chrono::seconds(60)};
}

template <class F>
void run(int size, F f) {
  const auto hub = std::make_shared<tutti::threads_hub>(size);
  tutti_test::on_threads(size, [&](int rank) { return world_of(hub, rank); }, f);
}

TEST_CASE("group memory: a thousand splits take no more than a few") {
  for (const int size : {2, 3})
    run(size, [](world& w) {
      w.barrier().wait();
      const std::size_t before = held(w);
      for (int i = 0; i < 1000; ++i) {
        auto group = w.split(w.rank() % (1 + i % 2));
        expect(group.all_reduce(1).wait() == group.size(), "a wrong sum");
        expect(held(w) <= before + 2 * shm_group::part_bytes,
               std::to_string(held(w) - before) + " bytes are held after " + std::to_string(i + 1) + " splits");
      }
    });
}

TEST_CASE("group memory: what a message of 64 KiB adds is given back, too") {
  run(2, [](world& w) {
    std::vector<float> data(65536);
    w.barrier().wait();
    const std::size_t before = held(w);
    for (int i = 0; i < 20; ++i) {
      auto group = w.split(0);
      group.all_reduce(data).wait();
      expect(held(w) <= before + 2 * (shm_group::part_bytes + shm_group::long_bytes), "it is still held");
    }
  });
}

// A rank that destroys its communicator takes nothing from those who are still reading there.
TEST_CASE("group memory: stays as long as another rank reads it") {
  for (const int size : {2, 3, 5})
    run(size, [](world& w) {
      std::vector<std::uint32_t> data(50000);
      std::vector<std::optional<world>> kept(3);
      for (std::uint32_t i = 0; i < 60; ++i) {
        auto group = w.split(0);
        const int root = static_cast<int>(i) % group.size();
        for (std::size_t k = 0; k < data.size(); ++k)
          data[k] = group.rank() == root ? i * 100000 + static_cast<std::uint32_t>(k) : 7;
        group.broadcast(data, root).wait();
        if (group.rank() == root && i % 2 == 0) {
          auto gone = std::move(group);  // the root leaves at once
        } else {
          kept[i % 3].emplace(std::move(group));
        }
        for (std::size_t k = 0; k < data.size(); ++k)
          expect(data[k] == i * 100000 + static_cast<std::uint32_t>(k), "element", k);
      }
      kept.clear();
      w.barrier().wait();
    });
}

TEST_CASE("group memory: a group that never met leaves nothing") {
  run(2, [](world& w) {
    w.barrier().wait();
    const std::size_t before = held(w);
    {
      auto group = w.split(0);
    }
    w.barrier().wait();
    expect(held(w) == before, "something is held");
  });
}

}  // namespace
