// Times collectives on the world in which this process was started:
//   tutti-run -n 2 -- tutti-bench all_reduce -b 8 -e 64M -f 4
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "host.hpp"
#include "nccl.hpp"
#include "options.hpp"
#include "recording.hpp"
#include "replay.hpp"
#include "table.hpp"
#include "tune.hpp"

namespace {

void tune(bench::communicator& world, const bench::options& o) {
  const auto budget = std::chrono::duration<double>(o.tune_seconds);
  const bool tells = world.rank() == 0;
  if (world.size() == 1) throw std::runtime_error("--tune compares algorithms between ranks: start two or more");
  if (tells && world.backend().links() == tutti::algo::connectivity::memory)
    std::fprintf(stderr, "all ranks share memory, where direct measures its ways by itself: nothing to compare\n");
  std::ofstream file;
  if (tells) {  // opened first, so that an error appears before a minute of measurements
    file.open(o.tune);
    if (!file) throw std::runtime_error("cannot write " + o.tune);
  }
  bench::tuner tuner(world, std::chrono::duration_cast<tutti::duration>(budget));
  const std::string table =
      tuner.run([&](const std::string& collective, std::size_t bytes, tutti::algorithm a, double t) {
        if (tells) std::fprintf(stderr, "%s %zu %s %.2f us\n", collective.c_str(), bytes, tutti::name(a), t * 1e6);
      });
  if (!tells) return;
  file << table;
  if (!file.flush()) throw std::runtime_error("cannot write " + o.tune);
}

}  // namespace

int main(int argc, char** argv) try {
  bench::options o;
  const char* rank = std::getenv("RANK");
  const bool first = rank == nullptr || std::string_view{rank} == "0";
  if (const auto status = bench::parse(argc, argv, o, first)) return *status;
  std::vector<bench::recording> recordings;
  if (!o.replay.empty()) recordings = bench::recordings_in(o.replay);
  tutti::init_options how;
  if (o.machines > 1) {
    if (rank == nullptr) throw tutti::usage_error("--machines goes by RANK in the environment, as tutti-run sets it");
    how.memory_domain = "machine " + std::to_string(std::atoi(rank) % o.machines);
  }
  auto world = tutti::init(how);
  world.timeout(std::chrono::duration_cast<tutti::duration>(std::chrono::duration<double>(o.timeout_seconds)));
  if (!o.replay.empty()) {
    bench::replay(std::move(world), o, recordings);
    return 0;
  }
  if (o.root < 0 || o.root >= world.size())
    throw tutti::usage_error("--root " + std::to_string(o.root) + " is not a rank of this world of " +
                             std::to_string(world.size()));
  if (o.collective == "sendrecv" && world.size() == 1)
    throw tutti::usage_error("sendrecv needs two ranks or more: none exchanges messages with itself");
  if (!o.tune.empty()) {
    tune(world, o);
    return 0;
  }
  if (world.rank() != 0) o.json.clear();
  bench::table rows{o};
  if (o.backend == "nccl")
    bench::run_on_gpus(world, o, rows);
  else
    bench::run_on_host(world, o, rows);
  const int status = world.rank() == 0 ? rows.footer() : 0;
  return world.broadcast(status, 0).wait();
} catch (const std::exception& e) {
  std::fprintf(stderr, "tutti-bench: %s\n", e.what());
  return 1;
}
