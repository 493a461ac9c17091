// Times collectives on whatever world this process was started in:
//   tutti-run -n 2 -- tutti-bench all_reduce -b 8 -e 64M -f 4
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tutti/tutti.hpp>

#include "measure.hpp"
#include "nccl.hpp"
#include "options.hpp"
#include "table.hpp"
#include "tune.hpp"

namespace {

using bench::timing;

template <class T>
timing all_reduce(bench::communicator& world, const bench::options& o, const tutti::issue& how, std::size_t count,
                  bool in_place) {
  if (o.op == "prod") return bench::all_reduce<T>(world, o, how, count, tutti::prod, in_place);
  if (o.op == "max") return bench::all_reduce<T>(world, o, how, count, tutti::max, in_place);
  if (o.op == "min") return bench::all_reduce<T>(world, o, how, count, tutti::min, in_place);
  if (o.op == "avg") return bench::all_reduce<T>(world, o, how, count, tutti::mean, in_place);
  return bench::all_reduce<T>(world, o, how, count, tutti::sum, in_place);
}

template <class T>
void sweep(bench::communicator& world, const bench::options& o, bench::table& rows) {
  const tutti::issue how{.via = tutti::algorithm_of(o.algorithm)};
  for (const std::size_t asked : o.sizes()) {
    const std::size_t count = asked / sizeof(T);
    std::optional<timing> out_of_place;
    timing in_place;
    if (o.collective == "broadcast") {
      in_place = bench::broadcast<T>(world, o, how, count);
    } else {
      out_of_place = all_reduce<T>(world, o, how, count, false);
      in_place = all_reduce<T>(world, o, how, count, true);
    }
    if (world.rank() == 0) rows.row(world.size(), count * sizeof(T), count, out_of_place, in_place);
  }
}

void run(bench::communicator& world, const bench::options& o, bench::table& rows) {
  if (o.collective == "barrier") {
    const timing t =
        bench::time_rounds(world, o, [&] { return world.barrier({.via = tutti::algorithm_of(o.algorithm)}); });
    if (world.rank() == 0) rows.row(world.size(), 0, 0, std::nullopt, t);
  } else if (o.type == "int8")
    sweep<std::int8_t>(world, o, rows);
  else if (o.type == "uint8")
    sweep<std::uint8_t>(world, o, rows);
  else if (o.type == "int32")
    sweep<std::int32_t>(world, o, rows);
  else if (o.type == "uint32")
    sweep<std::uint32_t>(world, o, rows);
  else if (o.type == "int64")
    sweep<std::int64_t>(world, o, rows);
  else if (o.type == "uint64")
    sweep<std::uint64_t>(world, o, rows);
  else if (o.type == "half")
    sweep<tutti::float16>(world, o, rows);
  else if (o.type == "bfloat16")
    sweep<tutti::bfloat16>(world, o, rows);
  else if (o.type == "double")
    sweep<double>(world, o, rows);
  else
    sweep<float>(world, o, rows);
}

void tune(bench::communicator& world, const bench::options& o) {
  const auto budget = std::chrono::duration<double>(o.tune_seconds);
  const bool tells = world.rank() == 0;
  if (world.size() == 1) throw std::runtime_error("--tune compares algorithms between ranks: start two or more");
  std::ofstream file;
  if (tells) {  // before the ranks work for a minute
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
  tutti::init_options how;
  if (o.machines > 1 && rank != nullptr) how.memory_domain = "machine " + std::to_string(std::atoi(rank) % o.machines);
  auto world = tutti::init(how);
  world.timeout(std::chrono::duration_cast<tutti::duration>(std::chrono::duration<double>(o.timeout_seconds)));
  if (o.root < 0 || o.root >= world.size())
    throw tutti::usage_error("--root " + std::to_string(o.root) + " is not a rank of this world of " +
                             std::to_string(world.size()));
  if (!o.tune.empty()) {
    tune(world, o);
    return 0;
  }
  if (world.rank() != 0) o.json.clear();
  bench::table rows{o};
  if (o.backend == "nccl") {
    bench::run_on_gpus(world, o, rows);
  } else {
    if (world.rank() == 0) rows.header(world.size());
    run(world, o, rows);
  }
  const int status = world.rank() == 0 ? rows.footer() : 0;
  return world.broadcast(status, 0).wait();
} catch (const std::exception& e) {
  std::fprintf(stderr, "tutti-bench: %s\n", e.what());
  return 1;
}
