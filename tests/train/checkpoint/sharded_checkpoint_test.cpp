#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <vector>

#include "support/temporary_directory.hpp"

namespace {
using namespace tutti::train;
using world_t = tutti::communicator<tutti::threads>;
using tutti_test::temporary_directory;

constexpr std::uint64_t elements = 23;
std::uint64_t cut(int part, int parts) {
  return elements * static_cast<std::uint64_t>(part) / static_cast<std::uint64_t>(parts);
}

/// This rank's part of a tensor whose element i is i + add.
template <class World>
std::vector<float> part_of(const World& world, float add) {
  const auto first = cut(world.rank(), world.size());
  std::vector<float> v(static_cast<std::size_t>(cut(world.rank() + 1, world.size()) - first));
  std::iota(v.begin(), v.end(), static_cast<float>(first) + add);
  return v;
}

template <class World>
void save(World& world, const std::string& folder, float add) {
  auto mine = part_of(world, add);
  std::vector<double> whole{1, 2, static_cast<double>(add)};
  save_sharded(world, folder,
               std::vector{shard("w", std::span{mine}, cut(world.rank(), world.size()), elements),
                           shard("all", std::span{whole}, 0, 3)},
               {{"step", std::to_string(static_cast<int>(add))}});
}
template <class World>
void check(World& world, const std::string& folder, float add) {
  const auto expected = part_of(world, add);
  std::vector<float> mine(expected.size());
  std::vector<double> whole(2);
  const auto words =
      load_sharded(world, folder,
                   std::vector{shard("module.w", std::span{mine}, cut(world.rank(), world.size()), elements),
                               shard("all", std::span{whole}, 1, 3)});
  if (mine != expected || whole != std::vector<double>{2, static_cast<double>(add)})
    throw std::runtime_error("other values");
  if (words != metadata{{"step", std::to_string(static_cast<int>(add))}}) throw std::runtime_error("other words");
}

tutti::errc kind_of(const std::string& folder) {
  tutti::errc kind = tutti::errc::ok;
  try {
    tutti::run_threads(2, [&](world_t& world) { check(world, folder, 5); });
  } catch (const tutti::error& e) {
    kind = e.kind();
  }
  return kind;
}
}  // namespace

TEST_CASE("sharded_checkpoint: saved by any number of ranks, loaded by any other, also more than there are elements") {
  for (const int before : {1, 2, 3, 5, 30})
    for (const int after : {1, 2, 4, 7, 25}) {
      const temporary_directory folder;
      tutti::run_threads(before, [&](world_t& world) { save(world, folder.file("ckpt"), 5); });
      tutti::run_threads(after, [&](world_t& world) { check(world, folder.file("ckpt"), 5); });
    }
}

TEST_CASE("sharded_checkpoint: a newer one replaces the older, whose shards are removed; other files stay") {
  const temporary_directory folder;
  const std::string digits(40, '1');
  const std::vector<std::string> mine{
      "model-00001-of-00002.safetensors", "2026-11-22.safetensors",   "2026-11.safetensors",  "-.safetensors",
      digits + "-.safetensors",           digits + "-0x.safetensors", digits + ".safetensors"};
  for (const auto& file : mine) std::ofstream(folder.file(file)) << "other";
  std::ofstream(folder.file(digits + "-7.safetensors")) << "left by a crash";
  tutti::run_threads(4, [&](world_t& world) { save(world, folder.path().string(), 5); });
  tutti::run_threads(2, [&](world_t& world) {
    save(world, folder.path().string(), 6);
    check(world, folder.path().string(), 6);
  });
  for (const auto& file : mine) CHECK(std::filesystem::exists(folder.file(file)));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3 + std::ssize(mine));
}

TEST_CASE("sharded_checkpoint: an older shard that cannot be removed does not fail a save that is durable") {
  const temporary_directory folder;
  const std::string path = folder.path().string();
  std::filesystem::create_directories(folder.file(std::string(40, '1') + "-0.safetensors/not empty"));
  tutti::run_threads(2, [&](world_t& world) {
    save(world, path, 5);
    save(world, path, 6);
    check(world, path, 6);
  });
  CHECK(std::distance(std::filesystem::directory_iterator(path), {}) == 4);
}

TEST_CASE("sharded_checkpoint: words that cannot be saved are refused before anything is written") {
  const temporary_directory folder;
  const std::string path = folder.file("ckpt");
  const std::vector<metadata> refused{
      {{"tutti.id", "7"}}, {{"tutti.place.w", "x"}}, {{"note", "gr\xfc\xdf"}}, {{"gr\xfc\xdf", "note"}}};
  tutti::run_threads(2, [&](world_t& world) {
    auto mine = part_of(world, 5);
    const std::vector shards{shard("w", std::span{mine}, cut(world.rank(), world.size()), elements)};
    for (const metadata& words : refused) {
      CHECK_THROWS_AS(save_sharded(world, path, shards, words), tutti::usage_error);
      CHECK_FALSE(std::filesystem::exists(path));
      world.barrier().wait();
    }
    save_sharded(world, path, shards, {{"tutti", "7"}});
    if (load_sharded(world, path, shards) != metadata{{"tutti", "7"}}) throw std::runtime_error("words");
  });
}

TEST_CASE("sharded_checkpoint: ranks remove their new shards if one of them cannot write its own") {
  const temporary_directory folder;
  const std::string path = folder.path().string();
  for (const int bad : {0, 1, 2}) {
    tutti::run_threads(3, [&](world_t& world) {
      save(world, path, 5);
      auto mine = part_of(world, 6);
      std::vector shards{shard("w", std::span{mine}, cut(world.rank(), world.size()), elements)};
      if (world.rank() == bad) shards.push_back(shards[0]);  // a name twice
      CHECK_THROWS_AS(save_sharded(world, path, shards), tutti::usage_error);
      world.barrier().wait();
      check(world, path, 5);
    });
    CHECK(std::distance(std::filesystem::directory_iterator(path), {}) == 4);
  }
}

TEST_CASE("sharded_checkpoint: what is missing, foreign or cut short is refused on all ranks") {
  const temporary_directory folder;
  const std::string path = folder.path().string();
  CHECK(kind_of(path) == tutti::errc::system);  // nothing there
  tutti::run_threads(2, [&](world_t& world) { save(world, path, 5); });
  CHECK(kind_of(path) == tutti::errc::ok);
  std::string some;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().filename() != "index.safetensors") some = entry.path().string();
  const auto size = std::filesystem::file_size(some);
  std::filesystem::resize_file(some, size - 1);
  CHECK(kind_of(path) == tutti::errc::protocol);
  std::filesystem::remove(some);
  CHECK(kind_of(path) == tutti::errc::system);
  write_tensors(path + "/index.safetensors", {}, {{"tutti.shards", "2"}, {"tutti.id", "../../x"}});
  CHECK(kind_of(path) == tutti::errc::protocol);
  write_tensors(path + "/index.safetensors", {}, {{"tutti.shards", "99999999999"}, {"tutti.id", "1"}});
  CHECK(kind_of(path) == tutti::errc::protocol);
  write_tensors(path + "/index.safetensors", {});
  CHECK(kind_of(path) == tutti::errc::protocol);
}

TEST_CASE("sharded_checkpoint: elements that nobody saved, and tensors of other sizes, are a mismatch") {
  const temporary_directory folder;
  std::atomic<int> mismatches{0};
  tutti::run_threads(2, [&](world_t& world) {
    std::array<float, 3> v{1, 1, 1};
    const auto first = static_cast<std::uint64_t>(4 * world.rank());  // 0 to 3 and 4 to 7 of 7: 3 is missing
    save_sharded(world, folder.path().string(), std::vector{shard("w", std::span{v}, first, 7)});
    const auto load = [&](std::uint64_t from, std::uint64_t total, const char* what) {
      try {
        load_sharded(world, folder.path().string(), std::vector{shard(what, std::span{v}, from, total)});
      } catch (const tutti::error& e) {
        if (e.kind() == tutti::errc::mismatch) ++mismatches;
      }
    };
    load(4, 7, "w");
    if (mismatches != 0) throw std::runtime_error("a false mismatch");
    world.barrier().wait();
    load(1, 7, "w");
    load(4, 8, "w");
    load(4, 7, "v");
    const std::span<const float> fixed{v};
    CHECK_THROWS_AS(load_sharded(world, folder.path().string(), std::vector{shard("w", fixed, 4, 7)}),
                    tutti::usage_error);
  });
  CHECK(mismatches == 6);
  std::vector<float> v(3);
  CHECK_THROWS_AS((void)shard("w", std::span{v}, 1, 3), tutti::usage_error);
}

TEST_CASE("sharded_checkpoint: a rank that dies while saving leaves the old checkpoint or the new one") {
  int losses = 0;
  tutti::for_seeds(1, 30, [&](std::uint64_t seed) {
    const temporary_directory folder;
    const std::string path = folder.path().string();
    tutti::run_sim(3, seed, [&](auto& world) { save(world, path, 1); });
    try {
      tutti::run_sim(3, {.seed = seed, .lose_rank = static_cast<int>(seed % 3), .lose_at_step = 1 + seed % 12},
                     [&](auto& world) { save(world, path, 2); });
    } catch (const tutti::error& e) {
      if (e.kind() != tutti::errc::peer_lost) throw;
      ++losses;
    }
    tutti::run_sim(2, seed, [&](auto& world) {
      try {
        check(world, path, 1);
      } catch (const std::runtime_error&) {
        check(world, path, 2);
      }
    });
  });
  CHECK(losses > 5);
}
