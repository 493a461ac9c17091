#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/checkpoint.hpp>
#include <vector>

#include "support/temporary_directory.hpp"

namespace {
using namespace tutti::train;
using world_t = tutti::communicator<tutti::threads>;
using tutti_test::temporary_directory;
}  // namespace

TEST_CASE("checkpoint: rank 0 writes, rank 0 reads, all have it, on another number of ranks") {
  const temporary_directory folder;
  const std::string path = folder.file("model.safetensors");
  tutti::run_threads(2, [&](world_t& world) {
    std::vector<float> w{1, 2, 3};
    std::vector<double> v{4};
    if (world.rank() == 0)
      save_checkpoint(world, path, std::vector{tensor("w", std::span{w}), tensor("v", std::span{v})}, {{"epoch", "3"}});
    else
      save_checkpoint(world, path, {});
  });
  for (const int ranks : {1, 3, 5})
    tutti::run_threads(ranks, [&](world_t& world) {
      std::vector<float> w(3);
      std::vector<double> v(1);
      const auto words =
          load_checkpoint(world, path, std::vector{tensor("module.w", std::span{w}), tensor("v", std::span{v})});
      if (w != std::vector<float>{1, 2, 3} || v[0] != 4 || words != metadata{{"epoch", "3"}})
        throw std::runtime_error("another checkpoint");
    });
}

TEST_CASE("checkpoint: what goes wrong on rank 0 is thrown on all ranks, and the world goes on") {
  const temporary_directory folder;
  std::atomic<int> mismatches{0}, systems{0}, usages{0};
  tutti::run_threads(3, [&](world_t& world) {
    std::vector<float> w(3);
    const auto none = folder.file("none/model");
    try {
      save_checkpoint(world, none, std::vector{tensor("w", std::span{w})});
    } catch (const tutti::error& e) {
      if (e.kind() == tutti::errc::system && std::string(e.what()).find("rank 0: cannot create") == 0) ++systems;
    }
    try {
      load_checkpoint(world, none, std::vector{tensor("w", std::span{w})});
    } catch (const tutti::error& e) {
      if (e.kind() == tutti::errc::system) ++systems;
    }
    const auto path = folder.file("model");
    save_checkpoint(world, path, std::vector{tensor("w", std::span{w})});
    try {
      load_checkpoint(world, path, std::vector{tensor("v", std::span{w})});
    } catch (const tutti::error& e) {
      if (e.kind() == tutti::errc::mismatch) ++mismatches;
    }
    try {
      save_checkpoint(world, path, std::vector{tensor("w", std::span{w}), tensor("w", std::span{w})});
    } catch (const tutti::usage_error&) {
      ++usages;
    }
    if (world.all_reduce(1).wait() != 3) throw std::runtime_error("sum");
  });
  CHECK(systems == 6);
  CHECK(mismatches == 3);
  CHECK(usages == 3);
}

TEST_CASE("checkpoint: a lack of memory or of space is told apart from other failures, on all ranks") {
  const auto kind_of = [](auto fail) {
    tutti::errc kind = tutti::errc::ok;
    tutti::run_threads(2, [&](world_t& world) {
      try {
        detail::all_or_none(world, {}, [&] {
          if (world.rank() == 1) fail();
        });
      } catch (const tutti::error& e) {
        if (world.rank() == 0) kind = e.kind();
      }
    });
    return kind;
  };
  const auto failing = [](std::errc why) {
    return [why] { throw std::filesystem::filesystem_error{"folder", std::make_error_code(why)}; };
  };
  CHECK(kind_of([] {}) == tutti::errc::ok);
  CHECK(kind_of([] { throw std::bad_alloc{}; }) == tutti::errc::out_of_resources);
  CHECK(kind_of(failing(std::errc::no_space_on_device)) == tutti::errc::out_of_resources);
  CHECK(kind_of(failing(std::errc::permission_denied)) == tutti::errc::system);
  CHECK(kind_of([] { throw std::runtime_error{"other"}; }) == tutti::errc::system);
}

TEST_CASE("checkpoint: lists that differ between ranks are refused on all of them, and nothing is loaded") {
  const temporary_directory folder;
  const std::string path = folder.file("model");
  std::atomic<int> refused{0};
  tutti::run_threads(3, [&](world_t& world) {
    std::vector<float> a(2, 1), b(2, 2), c(3);
    const auto a_of = tensor("a", std::span{a}), b_of = tensor("b", std::span{b});
    save_checkpoint(world, path, std::vector{a_of, b_of});
    a = b = {0, 0};
    const auto load = [&](std::vector<named_tensor> list, const std::string& says) {
      try {
        load_checkpoint(world, path, list);
      } catch (const tutti::error& e) {
        if (e.kind() == tutti::errc::mismatch && std::string(e.what()).find(says) != std::string::npos) ++refused;
      }
      if (a != std::vector<float>(2) || b != a || c[0] != 0) throw std::runtime_error("loaded");
    };
    const bool odd = world.rank() == 1;
    load(odd ? std::vector{b_of, a_of} : std::vector{a_of, b_of},
         R"(tensor 0 is "b", float32 [2] on rank 1 and "a", float32 [2] on rank 0)");
    load(odd ? std::vector{a_of, b_of} : std::vector{a_of},
         R"(tensor 1 is "b", float32 [2] on rank 1 and missing on rank 0)");
    load(std::vector{odd ? tensor("a", std::span{c}) : a_of}, "tensor 0 is \"a\", float32 [3] on rank 1");
    load_checkpoint(world, path, std::vector{a_of, b_of});
    if (a[0] != 1 || b[1] != 2) throw std::runtime_error("not loaded");
  });
  CHECK(refused == 9);
}

TEST_CASE("checkpoint: a rank that dies meanwhile is an error, not a hang; the file is whole or not there") {
  int losses = 0;
  tutti::for_seeds(1, 40, [&](std::uint64_t seed) {
    const temporary_directory folder;
    const std::string path = folder.file("model");
    try {
      tutti::run_sim(3, {.seed = seed, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 1 + seed % 8},
                     [&](tutti::communicator<tutti::sim>& world) {
                       std::vector<float> w{1, 2};
                       save_checkpoint(world, path, std::vector{tensor("w", std::span{w})});
                       load_checkpoint(world, path, std::vector{tensor("w", std::span{w})});
                     });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
    std::vector<float> w(2);
    if (std::filesystem::exists(path)) read_tensors(path, std::vector{tensor("w", std::span{w})});
  });
  CHECK(losses > 10);
}
