#pragma once
#include <CLI/CLI.hpp>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/core/options.hpp>

#include "collective.hpp"

namespace bench {

/// Returns the bytes of a text such as "64", "8K" or "1.5M", in powers of 1024, as in nccl-tests.
inline std::size_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const auto unit = std::toupper(static_cast<unsigned char>(*end));
  const double factor = unit == 'K' ? 0x1p10 : unit == 'M' ? 0x1p20 : unit == 'G' ? 0x1p30 : 1;
  const bool whole = unit == 0 || (factor > 1 && end[1] == 0);
  if (end == text.c_str() || !whole || !(value >= 0) || value * factor > 0x1p50)
    throw CLI::ValidationError("'" + text + "' is not a size; write 64, 8K, 1.5M or 1G");
  return static_cast<std::size_t>(value * factor);
}

struct options {
  std::string backend = "host", collective = "all_reduce";
  std::size_t min_bytes = 8, max_bytes = std::size_t{64} << 20, step_bytes = std::size_t{1} << 20;
  std::size_t step_factor = 4;
  int iterations = 20, warmup = 5, aggregate = 1, checks = 1, root = 0, machines = 1, graphs = 0, registration = 0;
  std::string op = "sum", type = "float", algorithm = "automatic", json, tune, replay;
  bool shared_gpus = false, blocking_calls = false, gaps = false;
  double timeout_seconds = 60, tune_seconds = 40;

  [[nodiscard]] std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> all;
    for (std::size_t s = min_bytes; s <= max_bytes; s = step_factor > 1 ? s * step_factor : s + step_bytes) {
      all.push_back(s);
      if (s == 0 || (step_factor == 1 && step_bytes == 0)) break;
    }
    return all;
  }
};

/// Parses the command line. Returns an exit status if the program must end at once, after --help or an error.
inline std::optional<int> parse(int argc, char** argv, options& o, bool prints) {
  CLI::App app{
      "Times collectives of tutti with nccl-tests' flags and columns.\n"
      "  tutti-run -n 2 -- tutti-bench all_reduce -b 8 -e 64M -f 4"};
  const std::string of_nccl = "with --backend nccl: ";
  app.add_option(
         "collective", o.collective,
         "the collectives of a communicator, and sendrecv (to the next rank, from the one before); "
         "all_reduce_coalesced takes 16 buffers, and of the blocks of _v every second is three times as long as "
         "its neighbours")
      ->check(CLI::IsMember(collective_names()))
      ->capture_default_str();
  app.add_option("--backend", o.backend, "host: memory of the host by tutti's own algorithms; nccl: GPUs")
      ->check(CLI::IsMember({"host", "nccl"}))
      ->capture_default_str();
  const auto size = [&](const std::string& flags, std::size_t& into, const std::string& help) {
    app.add_option_function<std::string>(flags, [&into](const std::string& s) { into = parse_bytes(s); }, help);
  };
  size("-b,--minbytes", o.min_bytes, "smallest size [8]");
  size("-e,--maxbytes", o.max_bytes, "largest size [64M]");
  size("-i,--stepbytes", o.step_bytes, "added from size to size, with -f 1 [1M]");
  app.add_option("-f,--stepfactor", o.step_factor, "multiplied from size to size; 1: use -i")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-n,--iters", o.iterations, "timed rounds of a size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", o.warmup, "rounds before them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("-m,--agg_iters", o.aggregate, "operations in flight in a round")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-c,--check", o.checks, "verified rounds of a size, 0 for none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("-o,--op", o.op, "sum, prod, max, min or avg")
      ->check(CLI::IsMember({"sum", "prod", "max", "min", "avg"}))
      ->capture_default_str();
  app.add_option("-d,--datatype", o.type,
                 "int8 uint8 int32 uint32 int64 uint64 half bfloat16 float double f8e4m3 f8e5m2")
      ->check(CLI::IsMember({"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "bfloat16", "float",
                             "double", "f8e4m3", "f8e5m2"}))
      ->capture_default_str();
  app.add_option("-r,--root", o.root, "root of a broadcast, reduce, gather or scatter")->capture_default_str();
  std::vector<std::string> algorithms;
  for (std::uint8_t i = 0; tutti::name(static_cast<tutti::algorithm>(i)) != std::string("unknown"); ++i)
    algorithms.emplace_back(tutti::name(static_cast<tutti::algorithm>(i)));
  app.add_option("--algo", o.algorithm,
                 "forces an algorithm; what the collective lacks is an error that lists what it has")
      ->check(CLI::IsMember(algorithms))
      ->capture_default_str();
  app.add_option("-R,--local_register", o.registration,
                 "2: symmetric memory, world.allocate, which ranks of a machine share; 1: ordinary memory, "
                 "world.register_buffer; 0: ordinary")
      ->check(CLI::IsMember({0, 1, 2}))
      ->capture_default_str();
  app.add_option("--machines", o.machines,
                 "under tutti-run, ranks of one machine act as those of so many, in turns: TCP between, memory inside")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-T,--timeout", o.timeout_seconds, "seconds that one operation may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-J,--output_file", o.json, "JSON lines, one for each row, are written to this file");
  app.add_option("-G,--cudagraph", o.graphs,
                 of_nccl + "the rounds are captured into a CUDA graph, which is launched so often; 0: no graph")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--share_gpus", o.shared_gpus, of_nccl + "ranks may share a GPU, as tests on one GPU do");
  app.add_flag("--blocking_calls", o.blocking_calls, of_nccl + "nccl_calls::blocking");
  app.add_option("--replay", o.replay,
                 "makes the calls of a flight recording again: a folder with the rank_<rank>.json of all ranks, or one "
                 "of them; the world has as many ranks as the recorded one");
  app.add_flag("--gaps", o.gaps, "with --replay: keeps the recorded time between calls");
  app.add_option("--tune", o.tune,
                 "measures the algorithms of every collective on this world and writes a table for TUTTI_TUNING");
  app.add_option("--tune_seconds", o.tune_seconds, "that --tune takes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    if (o.min_bytes > o.max_bytes) throw CLI::ValidationError("--minbytes is larger than --maxbytes");
    if (o.backend == "nccl" && o.registration != 0)
      throw CLI::ValidationError("--local_register is for memory of the host");
    if (o.gaps && o.replay.empty()) throw CLI::ValidationError("--gaps goes with --replay");
    if (o.backend == "nccl" && !o.replay.empty()) throw CLI::ValidationError("--replay uses memory of the host");
    if (o.backend == "nccl" && !o.tune.empty()) throw CLI::ValidationError("--tune measures the host's algorithms");
  } catch (const CLI::ParseError& e) {
    std::ostringstream out, err;
    const int status = app.exit(e, out, err);
    if (prints) std::fputs((out.str() + err.str()).c_str(), status == 0 ? stdout : stderr);
    return status;
  }
  return std::nullopt;
}

}  // namespace bench
