#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/os/process.hpp>
#include <tutti/transport/host.hpp>
#include <tutti/transport/shm/export.hpp>
#include <tutti/transport/shm/import.hpp>

#include "transport/drive.hpp"
#include "transport/tcp_world.hpp"

namespace {

using namespace std::chrono_literals;
using tcp_world::code_of;
using tutti::errc;
using tutti::host_transport;
using tutti::status;
using driver = drive::rank_driver<host_transport>;
using tutti_test::forked_child;

static_assert(tutti::byte_stream<tutti::host_stream>);
static_assert(tutti::mapped_transport<host_transport>);

/// Ranks whose machines only pretend to be several: rank r is on machine `machines[r]`.
class world {
 public:
  using body = std::function<int(driver&)>;

  world(std::vector<int> machines, const body& run) : machines_(std::move(machines)) {
    for (int r = 0; r < size(); ++r) children_.emplace_back([&, r] { return child(r, run); });
  }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(machines_.size()); }
  forked_child& rank(int r) { return children_[static_cast<std::size_t>(r)]; }
  std::string end_of(int r) { return tcp_world::to_string(rank(r).wait()); }
  /// For a rank to call when its transport is set up and works.
  void report_set_up() const noexcept { ++page_->set_up; }
  /// True when all of them have, false when some have not in half a minute.
  [[nodiscard]] bool everyone_is_set_up() const {
    const auto until = tutti::after(30s);
    while (page_->set_up < size() && tutti::clock::now() < until) std::this_thread::sleep_for(200us);
    return page_->set_up == size();
  }

 private:
  struct entry {
    std::atomic<bool> here;
    int pid;
    std::uint64_t start_time;
    char endpoint[64], shared_memory[128];
  };
  struct page {
    std::array<entry, 8> ranks;
    std::atomic<int> set_up;
  };

  int child(int r, const body& run) {
    const int machine = machines_[static_cast<std::size_t>(r)];
    const int local = static_cast<int>(std::count(machines_.begin(), machines_.begin() + r, machine));
    const int locals = static_cast<int>(std::count(machines_.begin(), machines_.end(), machine));
    const bool mixed = locals != size();
    std::optional<tutti::tcp_listener> listener;
    if (mixed) listener.emplace(machine == 0 ? "127.0.0.1" : "127.0.0.2");
    std::optional<tutti::shm_export> offer;
    if (local == 0)
      offer.emplace(locals, tutti::shm_options{64 << 20, mixed ? tutti::shm_control_block::sleep::on_descriptor
                                                               : tutti::shm_control_block::sleep::on_futex});
    entry& mine = page_->ranks[static_cast<std::size_t>(r)];
    mine.pid = ::getpid();
    mine.start_time = tutti::os::process_start_time(::getpid()).value_or(0);
    if (listener) std::strcpy(mine.endpoint, listener->endpoint().c_str());
    if (offer) std::strcpy(mine.shared_memory, offer->name().c_str());
    mine.here = true;

    tutti::roster all;
    std::string name;
    for (int q = 0; q < size(); ++q) {
      const entry& e = page_->ranks[static_cast<std::size_t>(q)];
      while (!e.here) std::this_thread::sleep_for(100us);
      tutti::rank_info p;
      p.rank = q;
      p.local_size = locals;
      p.host = machines_[static_cast<std::size_t>(q)] == 0 ? "a" : "b";
      p.pid = e.pid;
      p.start_time = e.start_time;
      p.memory_domain = "machine " + std::to_string(machines_[static_cast<std::size_t>(q)]);
      p.endpoint = e.endpoint;
      p.shared_memory = e.shared_memory;
      if (machines_[static_cast<std::size_t>(q)] == machine && !p.shared_memory.empty()) name = p.shared_memory;
      all.push_back(p);
    }
    const auto until = tutti::after(30s);
    std::optional<tutti::shm_attachment> memory =
        offer ? offer->hand_out(all, r, until) : tutti::shm_import(name, all, r, until);
    host_transport transport{all, r, std::move(memory), std::move(listener), {tutti::wire::job_id::of("test"), 1, {}}};
    driver d{transport};
    return run(d);
  }

  std::vector<int> machines_;
  tcp_world::shared_page<page> page_;
  std::vector<forked_child> children_;
};

const std::vector<std::vector<int>> shapes{{0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}};

status work(driver& d, int rounds) {
  for (int i = 0; i < rounds; ++i)
    if (const status s = d.run(drive::barrier(d.transport(), static_cast<std::uint64_t>(i))); !s.ok()) return s;
  return {};
}

TEST_CASE("messages of all sizes, whatever the machines of the ranks") {
  for (const auto& machines : shapes) {
    world w{machines, [](driver& d) {
              const std::string wrong = drive::all_to_all(d, drive::sizes_around_the_eager_limit());
              return wrong.empty() ? code_of(work(d, 200)) : 99;
            }};
    for (int r = 0; r < w.size(); ++r) CHECK(w.end_of(r) == "exit code 0");
  }
}

TEST_CASE("memory is mapped inside a machine, and nothing of another one") {
  for (const auto& machines : shapes) {
    world w{machines, [&](driver& d) {
              auto& t = d.transport();
              auto* mine = t.allocate(64);
              *mine = static_cast<std::byte>(t.rank() + 1);
              const auto where = t.locate(mine, 64);
              if (!where) return 2;
              if (!work(d, 1).ok()) return 3;
              for (int p = 0; p < t.size(); ++p) {
                const bool same = machines[static_cast<std::size_t>(p)] == machines[static_cast<std::size_t>(t.rank())];
                const auto* theirs = t.resolve(p, *where);
                if ((theirs != nullptr) != same) return 4;
                if (p != t.rank() && t.maps(p) != same) return 1;
                if (same && *theirs != static_cast<std::byte>(p + 1)) return 5;
              }
              return work(d, 2).ok() ? 0 : 6;
            }};
    for (int r = 0; r < w.size(); ++r) CHECK(w.rank(r).wait() == 0);
  }
}

TEST_CASE("a rank that sleeps is woken by its neighbours and by other machines") {
  world w{{0, 0, 1, 1}, [](driver& d) {
            auto& t = d.transport();
            for (int i = 0; i < 40; ++i) {
              // One sends to everybody after all the others have fallen asleep.
              const auto tag = static_cast<std::uint64_t>(i) << 24;
              if (i % 4 == t.rank()) {
                std::this_thread::sleep_for(2ms);
                for (int p = 0; p < t.size(); ++p)
                  if (p != t.rank() && !d.run(drive::send(t, p, tag, {})).ok()) return 1;
              } else if (!d.run(drive::recv(t, i % 4, tag, {})).ok()) {
                return 2;
              }
            }
            return 0;
          }};
  for (int r = 0; r < w.size(); ++r) CHECK(w.rank(r).wait() == 0);
}

TEST_CASE("a rank that is killed is named on its machine and on the others") {
  std::mt19937 random{std::random_device{}()};
  for (int run = 0; run < 25; ++run) {
    world w{{0, 0, 1, 1}, [&](driver& d) {
              if (const status s = work(d, 1); !s.ok()) return code_of(s);
              w.report_set_up();
              return code_of(work(d, 1 << 30));
            }};
    // Set-up has its own tests: a rank that dies there is named by an exception.
    REQUIRE(w.everyone_is_set_up());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const int victim = static_cast<int>(random() % 4);
    w.rank(victim).signal(SIGKILL);
    for (int r = 0; r < 4; ++r) {
      CAPTURE(run);
      CAPTURE(victim);
      CAPTURE(r);
      const std::string end = w.end_of(r);
      if (r != victim) CHECK(end == tcp_world::to_string(code_of(errc::peer_lost, victim)));
    }
  }
}

TEST_CASE("a rank that leaves early is named everywhere") {
  world w{{0, 0, 1, 1}, [](driver& d) { return code_of(work(d, d.transport().rank() == 1 ? 9 : 1 << 30)); }};
  CHECK(w.rank(1).wait() == 0);
  for (const int r : {0, 2, 3}) CHECK(w.end_of(r) == tcp_world::to_string(code_of(errc::peer_left, 1)));
}

TEST_CASE("a cause reaches every machine") {
  world w{{0, 0, 1, 1}, [](driver& d) {
            if (const status s = work(d, 9); !s.ok()) return code_of(s);
            if (d.transport().rank() != 3) return code_of(work(d, 1 << 30));
            const auto guard = d.lock();
            d.transport().abort({errc::timed_out, 0, 2, 5});
            return 0;
          }};
  CHECK(w.rank(3).wait() == 0);
  for (const int r : {0, 1, 2}) CHECK(w.end_of(r) == tcp_world::to_string(code_of(errc::timed_out, 2)));
}

TEST_CASE("a rank that cannot be reached is a mistake of whoever made the roster") {
  tutti::roster two(2);
  for (int r = 0; r < 2; ++r) two[static_cast<std::size_t>(r)].rank = r;
  CHECK_THROWS_AS((host_transport{two, 0, std::nullopt}), tutti::usage_error);
  CHECK_THROWS_AS((host_transport{two, 0, std::nullopt, tutti::tcp_listener{}}), tutti::usage_error);
}

}  // namespace
