#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/async/progress_thread.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/log.hpp>

#include <communicator/ranks.hpp>

namespace {

using namespace std::chrono_literals;
using ranks::complaint;
using ranks::contains;
using ranks::expect;
using ranks::within;
using tutti::errc;

TEST_CASE("users_reduction: one may abort its world") {
  for (const int size : {1, 3})
    for (const auto via : {tutti::algorithm::automatic, tutti::algorithm::ring})
      tutti::run_threads(size, [via](auto& world) {
        std::vector<float> v(64, 1.0F);
        const auto add_or_abort = [w = &world](float a, float b) {
          if (w->rank() == 0) w->abort(7);
          return a + b;
        };
        try {
          world.all_reduce(v, add_or_abort, within(30000ms, via)).wait();
          expect(world.size() == 1 || world.rank() != 0, "the rank that aborted");  // others may have had all
        } catch (const tutti::error& e) {
          expect(e.kind() == errc::aborted && e.peer() == 0, "kind and rank", e.peer());
          expect(e.cause().detail == 7, "why", e.cause().detail);
          expect(contains(e.what(), world.rank() == 0 ? "aborted by this rank" : "aborted by rank 0"), e.what());
        }
      });
}

TEST_CASE("users_reduction: one neither begins operations nor waits for them, which would never end") {
  tutti::run_threads(2, [](auto& world) {
    std::vector<float> v(64, 1.0F), before(64);
    std::string words;
    auto pending = world.recv(before, 1 - world.rank(), 5);
    const auto nested = [&world, &words, &pending](float a, float b) {
      if (!words.empty()) return a + b;
      if (world.engine().poll()) words += "polled ";
      words += complaint([&] { world.barrier().wait(); });
      words += "; " + complaint([&] { pending.wait(); });
      words += "; " + complaint([&] { (void)world.template allocate<float>(5); });
      words += "; " + complaint([&] { (void)world.split(0); });
      words += "; " + complaint([&] { const tutti::progress_thread thread{world.engine()}; });
      return a + b;
    };
    world.all_reduce(v, nested).wait();
    std::string wanted;
    for (const char* call : {"barrier", "wait()", "allocate", "split", "progress_thread"})
      wanted += (wanted.empty() ? "" : "; ") + std::string(call) +
                " in a reduction or a hook, which runs inside of another operation";
    expect(words == wanted, words);
    world.barrier().wait();  // nobody sends while the other still reduces
    world.send(v, 1 - world.rank(), 5).wait();
    pending.wait();
    expect(before[0] == 2, "received", before[0]);
  });
}

std::atomic<int> kept_arrays{0};

void count_kept(const tutti::log_record& told) noexcept {
  if (contains(std::string(told.message), "memory of allocate() that ends inside of a reduction or a hook stays until"))
    ++kept_arrays;
}

TEST_CASE("users_reduction: memory of the world that ends in one does not take the lock again") {
  const auto drop_inside = [](auto& world) {
    std::optional array{world.template allocate<float>(64)};
    std::vector<float> v(64, 1.0F);
    world
        .all_reduce(v,
                    [&array](float a, float b) {
                      array.reset();
                      return a + b;
                    })
        .wait();
    expect(!array && v[5] == static_cast<float>(world.size()), "sum", v[5]);
    auto next = world.template allocate<float>(64);
    world.all_reduce(next).wait();
  };
  auto* const previous = tutti::set_log_handler(&count_kept);
  kept_arrays = 0;
  tutti::run_threads(2, [&](auto& world) { drop_inside(world); });
  tutti::run_sim(2, tutti::sim_options{}, [&](auto& world) { drop_inside(world); });
  tutti::set_log_handler(previous);
  CHECK(kept_arrays == 4);
}

thread_local bool throwing = false;

void copy_or_throw(const void* in, void* inout, std::size_t, std::size_t bytes) {
  if (throwing) throw std::runtime_error("a user's reason");
  std::memcpy(inout, in, bytes);
}

TEST_CASE("users_reduction: one that throws ends the world, and its rank is named") {
  const auto check = [](auto reduce) {
    tutti::run_threads(3, [&](auto& world) {
      std::vector<float> v(64, 1.0F);
      const int me = world.rank();
      throwing = me == 0;
      try {
        reduce(world, v);
        expect(me != 0, "the rank that threw");
      } catch (const tutti::error& e) {
        expect(e.kind() == errc::aborted && e.peer() == 0, "kind and rank");
        expect(contains(e.what(), me == 0 ? "a reduction threw an exception on this rank: a user's reason"
                                          : "a reduction threw an exception on rank 0"),
               e.what());
      }
    });
  };
  const auto add_or_throw = [](float a, float b) {
    if (throwing) throw std::runtime_error("a user's reason");
    return a + b;
  };
  check([&](auto& world, auto& v) { world.all_reduce(v, add_or_throw).wait(); });
  check([&](auto& world, auto& v) {
    std::vector<std::span<float>> list{std::span{v}.first(9), std::span{v}.subspan(9)};
    world.all_reduce_coalesced(list, add_or_throw).wait();
  });
  check([&](auto& world, auto& v) {
    const std::vector<std::size_t> lengths{60, 1, 3};
    std::vector<float> block(lengths[static_cast<std::size_t>(world.rank())]);
    world.reduce_scatter_v(v, block, lengths, add_or_throw).wait();
  });
  check([](auto& world, auto& v) {
    world.all_reduce(std::as_writable_bytes(std::span{v}), tutti::raw_reduction{&copy_or_throw, 4}).wait();
  });
}

}  // namespace
