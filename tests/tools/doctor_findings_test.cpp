#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tutti-doctor/findings.hpp"
#include "tutti-doctor/table.hpp"

using namespace tutti::doctor;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30U;

/// A healthy job of two machines, "a" and "b", with two ranks each, over TCP.
report healthy() {
  report all;
  for (int r = 0; r < 4; ++r) {
    rank_facts f;
    f.rank = r;
    f.world_size = 4;
    f.node = r / 2;
    f.host = r < 2 ? "a" : "b";
    f.kernel = "6.1";
    f.tutti = "0.1.0";
    f.interfaces = {{"lo", {"127.0.0.1"}, 0}, {"eth0", {"10.0.0." + std::to_string(1 + f.node)}, 10000}};
    f.address = "10.0.0." + std::to_string(1 + f.node) + ":4711";
    f.chosen_interface = "eth0";
    f.open_files = 65536;
    f.open_files_hard = 65536;
    f.memory_left = 64 * gib;
    f.has_shm = true;
    f.shm_free = 8 * gib;
    f.cpus = {0, 1, 2, 3};
    f.secret = "file, mode 0600";
    all.ranks.push_back(f);
  }
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) all.pairs.push_back({a, b, a / 2 == b / 2, 10, 1.2, 1.1});
  all.clocks = {{2, 0.0001, 0.00001}};
  return all;
}

/// Checks that a change of the healthy job is found, once, for these ranks.
template <class Change>
void check_found(severity how, std::vector<int> ranks, std::string_view what, std::string_view remedy, Change change) {
  report all = healthy();
  change(all);
  const auto found = find_faults(all);
  CAPTURE(to_text(found, all));
  REQUIRE(found.size() == 1);
  CHECK(found[0].how == how);
  CHECK(found[0].ranks == ranks);
  CHECK_MESSAGE(found[0].what.find(what) != std::string::npos, what);
  CHECK_MESSAGE(found[0].remedy.find(remedy) != std::string::npos, remedy);
  CHECK(has_errors(found) == (how == severity::error));
}

}  // namespace

TEST_CASE("doctor: nothing is found in a healthy job") {
  CHECK(find_faults(healthy()).empty());
  CHECK(to_text(healthy(), {}).ends_with("\nnothing found\n"));
}

TEST_CASE("doctor: limits, memory and /dev/shm") {
  using enum severity;
  const auto each = [](auto f) {
    return [f](report& all) {
      for (rank_facts& r : all.ranks) f(r);
    };
  };
  check_found(error, {0, 1, 2, 3}, "may open 64 files", "ulimit -n", each([](rank_facts& f) { f.open_files = 64; }));
  check_found(error, {3}, "may start 20 processes", "ulimit -u", [](report& all) { all.ranks[3].processes = 20; });
  check_found(error, {1}, "of memory are left within the limit of the control group", "docker run --memory",
              [](report& all) { all.ranks[1].memory_left = all.ranks[1].cgroup_left = gib / 32; });
  check_found(warning, {1}, "of memory are left on the machine", "fewer ranks",
              [](report& all) { all.ranks[1].memory_left = gib / 2; });
  check_found(warning, {2, 3}, "/dev/shm has 1 MiB free", "--shm-size",
              [](report& all) { all.ranks[2].shm_free = all.ranks[3].shm_free = gib / 1024; });
  check_found(warning, {0}, "/dev/shm is not mounted", "mount", [](report& all) {
    all.ranks[0].has_shm = false;
    all.ranks[0].shm_free = 0;
  });
  const auto gpus = [](rank_facts& f) {
    f.gpus = {"NVIDIA H200 at 0000:1b:00.0", "NVIDIA H200 at 0000:1c:00.0"};
    f.nccl = "2.20.5";
    f.nccl_needs_shm = true;
  };
  check_found(error, {0, 1}, "too little for NCCL", "--shm-size", [&](report& all) {
    for (rank_facts& f : all.ranks) gpus(f);
    all.ranks[0].shm_free = all.ranks[1].shm_free = gib / 1024;
  });
  check_found(error, {2}, "has NCCL 2.19.3, and rank 0 has 2.20.5", "libnccl.so", [&](report& all) {
    for (rank_facts& f : all.ranks) gpus(f);
    all.ranks[2].nccl = "2.19.3";
  });
  check_found(error, {2}, "ibv_reg_mr", "ulimit -l unlimited", [&](report& all) {
    for (rank_facts& f : all.ranks) gpus(f);
    all.ranks[2].fabric = {"mlx5_0"};
    all.ranks[2].locked_memory = 65536;
  });
  check_found(warning, {1}, "has NVIDIA's driver, but no GPU", "--gpus all", [](report& all) {
    all.ranks[1].driver = "NVRM version";
    all.ranks[1].no_cuda = "no libcudart.so";
  });
}

TEST_CASE("doctor: cores") {
  using enum severity;
  check_found(warning, {2, 3}, "2 ranks share 1 CPU: ", "no more ranks",
              [](report& all) { all.ranks[2].cpus = all.ranks[3].cpus = {5}; });
  check_found(warning, {2, 3}, "2 ranks share 1 CPU, the limit of the control group", "docker run --cpus",
              [](report& all) { all.ranks[2].cpu_quota = all.ranks[3].cpu_quota = 1; });
  check_found(warning, {0, 1}, "are bound to fewer CPUs than they are, 1, of the 4", "--bind core", [](report& all) {
    all.ranks[0].cpus = all.ranks[1].cpus = {1};
    rank_facts third = all.ranks[0];  // a third rank of the machine has cores of its own
    third.rank = 4;
    third.cpus = {0, 2, 3};
    all.ranks.push_back(third);
  });
}

TEST_CASE("doctor: networks, clocks, secrets") {
  using enum severity;
  check_found(error, {1}, "cannot connect to rank 3 at 10.0.0.2:4711: No route to host", "(there are eth0)",
              [](report& all) {
                all.ranks[1].unreachable = {{3, "10.0.0.2:4711", "No route to host"}};
                all.pairs.clear();
                all.not_measured = "a rank cannot connect to another";
              });
  check_found(warning, {0, 3}, "move 0.1 GB/s between them; half of the pairs move 1.1", "ethtool",
              [](report& all) { all.pairs[2].there_gbps = all.pairs[2].back_gbps = 0.1; });
  check_found(warning, {0, 3}, "in one direction and 0.29 in the other", "duplex",
              [](report& all) { all.pairs[2].back_gbps = 0.29; });
  check_found(warning, {2}, "has a clock 5 s ahead of", "timedatectl", [](report& all) { all.clocks[0].seconds = 5; });
  check_found(error, {2}, "has a clock 400 s behind", "timedatectl", [](report& all) { all.clocks[0].seconds = -400; });
  check_found(warning, {2, 3}, "eth0 (1000 Mbit/s), and ib0 has 100000", "TUTTI_INTERFACE=ib0", [](report& all) {
    for (const std::size_t r : {2U, 3U}) {
      all.ranks[r].interfaces[1].mbits = 1000;
      all.ranks[r].interfaces.push_back({"ib0", {"10.1.0.1"}, 100000});
    }
  });
  check_found(warning, {0}, "docker0, a bridge inside the machine", "TUTTI_INTERFACE",
              [](report& all) { all.ranks[0].interfaces[1].name = all.ranks[0].chosen_interface = "docker0"; });
  check_found(error, {2}, "others may read it", "TUTTI_SECRET_FILE", [](report& all) {
    all.ranks[2].secret_problem = "the job's secret cannot be read from s: others may read it (chmod 600 s)";
  });
  check_found(warning, {0, 1, 2, 3}, "has no secret", "TUTTI_SECRET_FILE", [](report& all) {
    for (rank_facts& f : all.ranks) f.secret = "none";
  });
}

TEST_CASE("doctor: errors come first, with their remedies; the tables have what was measured; JSON has it all") {
  report all = healthy();
  all.ranks[3].processes = 20;
  all.clocks[0].seconds = 5;
  const auto found = find_faults(all);
  const std::string text = to_text(all, found);
  CAPTURE(text);
  const auto error = text.find("ERROR    rank 3 (b) may start 20 processes"), remedy = text.find("-> ulimit -u 65536"),
             warning = text.find("warning  rank 2 (b) has a clock 5 s ahead");
  REQUIRE(warning != std::string::npos);
  CHECK(error < remedy);
  CHECK(remedy < warning);
  CHECK(text.ends_with("\n1 error, 1 warning\n"));
  for (const char* part : {"tutti 0.1.0, 4 ranks, no launcher\n", "\n0-1    memory  10.0 us  1.20 GB/s  1.10 GB/s\n",
                           "\n0-2    TCP     10.0 us  1.20 GB/s  1.10 GB/s\n", "+5000.000 ms", "lo", "eth0*", "0-3"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);

  const auto document = nlohmann::json::parse(to_json_text(all, found));
  CHECK(document["ok"] == false);
  CHECK(document["findings"].size() == 2);
  CHECK(document["findings"][0]["how"] == "error");
  CHECK(document["ranks"].size() == 4);
  CHECK(document["pairs"].size() == 6);
  CHECK(document.get<report>().ranks[3].processes == 20);

  CHECK(describe({0, 1, 3}, all) == "ranks 0-1,3 (a, b)");
  CHECK(list_of({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
}
