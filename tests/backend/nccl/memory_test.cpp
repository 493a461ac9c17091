#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <support/gpus.hpp>
#include <tutti/backend/nccl/memory.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::errc;
using tutti::nccl_calls;
template <class T>
using memory = tutti::basic_nccl_memory<T, fake::nccl>;

TEST_CASE("nccl_memory: registered where NCCL can, else memory as any other") {
  for (const int version : {22809, 22005, 21805})
    for (const nccl_calls calls : {nccl_calls::nonblocking, nccl_calls::blocking}) {
      fake::machine machine;
      machine.version = version;
      machine.polls_per_launch = 2;
      run_gpus(2,
               [&](gpus& g, auto& world) {
                 std::vector<float> v(1, 1);
                 auto before = g.all_reduce(on_device(v));  // may not be in the stream yet
                 memory<float> arena{g, 100};
                 CHECK(arena.registered() == (version == 22809));
                 CHECK(arena.span().size() == 100);
                 before.wait();
                 std::fill_n(arena.span().data(), 100, static_cast<float>(g.rank()));
                 g.all_reduce(arena.span()).wait();
                 CHECK(arena.span().data()[99] == 1);
                 memory<float> late{g, 8, tutti::nccl_registration::later};
                 CHECK(!late.registered());
                 late.enroll(g);
                 CHECK(late.registered() == (version == 22809));
                 memory<float> other{g, 0};
                 CHECK(!other.registered());
                 other = std::move(arena);
                 CHECK(arena.span().empty());
                 world.barrier().wait();
                 CHECK(machine.windows == (version == 22809 ? 4 : 0));
                 world.barrier().wait();
               },
               {.calls = calls});
      CHECK(machine.misuses == 0);
      CHECK(machine.left() == 0);
    }
}

TEST_CASE("nccl_memory: what NCCL does not register is still memory; what it does not have is an error") {
  fake::machine machine;
  run_gpus(1, [&](gpus& g, auto&) {
    machine.fail("ncclCommWindowRegister", {5});
    const memory<double> arena{g, 8};
    CHECK(!arena.registered());
    CHECK(!arena.span().empty());
    errc kind{};
    machine.fail("ncclMemAlloc", {1});
    const std::string other = words_of([&] { memory<double>{g, 8}; }, kind);
    CHECK(other.find("ncclMemAlloc of 64 bytes on device 0 failed: ") == 0);
    CHECK(other.find("what the fake says") != std::string::npos);
    CHECK(other.find("NCCL_CUMEM_ENABLE=0") != std::string::npos);
    CHECK(other.find("free device memory") == std::string::npos);
    CHECK(kind == errc::device);
    machine.last_error = "Cuda failure 2 'out of memory'";
    machine.fail("ncclMemAlloc", {1});
    CHECK(words_of([&] { memory<double>{g, 8}; }, kind).find("out of memory'); free device memory") !=
          std::string::npos);
    CHECK(kind == errc::out_of_resources);
    words_of([&] { memory<double>{g, std::size_t(-1) / 2}; }, kind);
    CHECK(kind == errc::out_of_resources);
    g.barrier().wait();
  });
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl_memory: a refusal that NCCL tells of later ends both worlds, in words that say what to do") {
  for (const int only : {-1, 1}) {
    CAPTURE(only);
    fake::machine machine;
    machine.fail("a window", {.code = 5, .only = only, .always = true});
    run_gpus(2,
             [&](gpus& g, auto& world) {
               errc kind{};
               bool said_success = false;
               const std::string words = words_of(
                   [&] {
                     const memory<float> arena{g, 8};
                     said_success = true;  // the other rank's refusal may come after it
                     for (;;) g.barrier().wait();
                   },
                   kind);
               CHECK(kind == errc::device);
               if (said_success) {
                 CHECK(only == 1);
                 CHECK(g.rank() == 0);
               } else {
                 CHECK(words.starts_with("memory could not be registered with NCCL: "));
                 CHECK(words.find("NCCL_WIN_ENABLE=0 on all ranks") != std::string::npos);
               }
               words_of([&] { world.barrier().wait(); }, kind);
               CHECK(kind == errc::device);
             },
             {.patience = 1s});
    CHECK(machine.windows == 0);
    CHECK(machine.misuses == 0);
  }
}

TEST_CASE("nccl_memory: it may outlive its communicator, and the failure of that") {
  fake::machine machine;
  run_gpus(1,
           [](gpus& g, auto&) {
             std::optional<memory<int>> arena;
             arena.emplace(g, 4);
             {
               const gpus last = std::move(g);
             }
             arena->span().data()[3] = 1;
           },
           {.patience = 1s});
  CHECK(machine.left() == 0);
  run_gpus(1,
           [](gpus& g, auto&) {
             memory<int> arena{g, 4};
             g.abort();
             errc kind{};
             words_of([&] { memory<int>{g, 4}; }, kind);
             CHECK(kind == errc::aborted);
           },
           {.patience = 1s});
  CHECK(machine.communicators == 0);
}

}  // namespace
