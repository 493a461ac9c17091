#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <support/gpus.hpp>
#include <support/temporary_directory.hpp>
#include <tutti/watch/dump.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace {

using tutti::watch::operation;
using tutti::watch::progress;

std::vector<operation> operations_of(gpus& g) {
  std::vector<operation> all;
  for (const auto& r : g.backend().recorder().memory().records)
    if (const operation o = r.read(); o.id != 0) all.push_back(o);
  return all;
}

}  // namespace

TEST_CASE("nccl, recorder: operations of GPUs are recorded, as those of a world of their own") {
  fake::machine machine;
  run_gpus(2, [](gpus& g, auto& world) {
    std::vector<float> some(5, 1.0F);
    g.all_reduce(on_device(some)).wait();
    g.broadcast(on_device(some), 1).wait();
    const auto all = operations_of(g);
    REQUIRE(all.size() == 2);
    CHECK(std::string(all[0].call.name()) == "all_reduce");
    CHECK(all[0].count == 5);
    CHECK(all[0].type == tutti::dtype::f32);
    CHECK(all[0].sequence == 1);
    CHECK(all[0].state == progress::completed);
    CHECK(std::string(all[1].call.name()) == "broadcast");
    CHECK(all[1].other == 1);
    CHECK(all[1].state == progress::completed);
    const auto &own = g.backend().recorder().memory().head, &host = world.backend().recorder().memory().head;
    CHECK(own.world != host.world);
    CHECK(own.rank == world.rank());
    CHECK(own.size == 2);
    std::uint64_t worlds[2] = {};
    world.all_gather(std::span{&own.world, 1}, std::span{worlds}).wait();
    CHECK(worlds[0] == worlds[1]);
  });
}

TEST_CASE("nccl, recorder: the recording of GPUs lies where that of their ranks does") {
  fake::machine machine;
  const tutti_test::temporary_directory folder;
  run_gpus(2, [&](gpus&, auto& world) {
    world.backend().recorder().keep_in(
        {folder.path().string(), "job", 7, tutti::watch::flight_recorder::next_number()});
    gpus later = tutti::make_nccl<fake::nccl>(world);
    std::vector<float> some(3, 1.0F);
    later.all_reduce(on_device(some)).wait();
    const std::string path =
        tutti::watch::ring_path(folder.path().string(), world.rank(), later.backend().recorder().memory().head.number);
    CHECK(std::filesystem::exists(path));
  });
}
