#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/launcher.hpp"

// Real ranks over real NCCL, as many as there are, on as many GPUs as there are: see gpu/programs. Where there is no
// GPU, the same programs run over libraries that stand for CUDA and NCCL (gpu/pretended), and say so without them.

namespace {

using namespace tutti_test::launcher;

int devices() {
  int n = 0;
  return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}
std::string test_program(const std::string& file) { return TUTTI_PROGRAM_DIR "/" + file; }
std::string example(const std::string& file) { return TUTTI_EXAMPLE_DIR "/" + file; }

enum class pretending { never, without_a_gpu };

/// Runs a program as so many ranks; its output.
result ranks(int n, const std::string& program, std::vector<std::string> words, pretending may) {
  std::vector<std::string> all{"-n", std::to_string(n), "--settle", "30", "--timeout", "240"};
  if (may == pretending::without_a_gpu && devices() == 0)
    all.insert(all.end(), {"--env", "LD_PRELOAD=" + test_program("libtutti_pretended_gpu.so")});
  all.insert(all.end(), {"--", program});
  all.insert(all.end(), words.begin(), words.end());
  return run(all);
}

/// The same of a program that leaves it to whoever starts it to tell NCCL that ranks share a GPU.
result ranks_that_may_share(int n, const std::string& program, const std::vector<std::string>& words) {
  if (devices() >= n) return ranks(n, program, words, pretending::without_a_gpu);
  std::vector<std::string> all{
      "-c", "NCCL_HOSTID=tutti-test-$RANK NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_IB_DISABLE=1 exec \"$@\"",
      "-", program};
  all.insert(all.end(), words.begin(), words.end());
  return ranks(n, "/bin/sh", all, pretending::without_a_gpu);
}

/// Without a GPU: that is what the program says, on every rank; false then.
bool can_run(const result& done, int n) {
  if (devices() > 0) return true;
  CHECK(done.status != 0);
  CHECK(job::occurrences(done.out + done.err, "cudaError") >= n);
  MESSAGE("skipped, for want of a GPU");
  return false;
}

TEST_CASE("gpu/ranks: every collective of 1, 2 and 4 ranks gives the bits of the host's") {
  for (const int n : {1, 2, 4}) {
    CAPTURE(n);
    const auto done = ranks(n, test_program("gpu_collectives"), {n == 2 && devices() > 0 ? "full" : "thin"},
                            pretending::without_a_gpu);
    CHECK_MESSAGE(done.status == 0, (done.out + done.err));
    CHECK_MESSAGE(contains(done.out, " 0 wrong"), done.out);
  }
}

TEST_CASE("gpu/ranks: gradients of 1, 2 and 4 ranks are reduced to the bits of the host's") {
  for (const int n : devices() > 0 ? std::vector{1, 2, 4} : std::vector{4}) {
    CAPTURE(n);
    const auto done = ranks(n, test_program("gpu_gradients"), {}, pretending::without_a_gpu);
    CHECK_MESSAGE(done.status == 0, done.out);
    CHECK_MESSAGE(contains(done.out, ", 0 wrong"), done.out);
  }
}

TEST_CASE("gpu/ranks: means of narrow floats over three ranks have the bits of the host's, compiled by nvcc") {
  if (::access(test_program("gpu_means").c_str(), X_OK) != 0) return;  // built only where nvcc was found
  const auto done = ranks(3, test_program("gpu_means"), {}, pretending::never);
  if (!can_run(done, 3)) return;
  CHECK_MESSAGE(done.status == 0, (done.out + done.err));
  CHECK_MESSAGE(contains(done.out, " 0 wrong"), done.out);
}

TEST_CASE("gpu/ranks: a graph with collectives is launched again and again") {
  for (const int n : {1, 2}) {
    CAPTURE(n);
    const auto done = ranks(n, test_program("gpu_fate"), {"graph"}, pretending::without_a_gpu);
    CHECK_MESSAGE(done.status == 0, (done.out + done.err));
    CHECK_MESSAGE(contains(done.out, " 0 wrong"), done.out);
  }
}

TEST_CASE("gpu/ranks: one of four is killed, and all others hear which one, within the deadline, and go on") {
  const auto done = ranks(4, test_program("gpu_fate"), {"kill"}, pretending::without_a_gpu);
  CHECK(done.status == 128 + SIGKILL);
  CHECK_MESSAGE(job::occurrences(done.out, "named the victim") == 3, done.out);
  CHECK_MESSAGE(job::occurrences(done.out, "went on with 3 ranks") == 3, done.out);
}

TEST_CASE("gpu/ranks: tutti-bench times each of nccl-tests' collectives, and finds its results right") {
  const std::string bench = TUTTI_BENCH_DIR "/tutti-bench";
  if (::access(bench.c_str(), X_OK) != 0) return;  // -DTUTTI_BUILD_BENCH=OFF
  struct {
    std::string name, row, in_place;
  } const all[] = {{"all_reduce", "1024           256     float     sum      -1", "0"},
                   {"broadcast", "1024           256     float    none       1", "0"},
                   {"reduce", "1024           256     float     sum       1", "0"},
                   {"all_gather", "1024           128     float    none      -1", "0"},
                   {"reduce_scatter", "1024           128     float     sum      -1", "0"},
                   {"gather", "1024           128     float    none       1", "0"},
                   {"scatter", "1024           128     float    none       1", "0"},
                   {"all_to_all", "1024           128     float    none      -1", "N/A"},
                   {"sendrecv", "1024           256     float    none      -1", "N/A"}};
  for (const auto& each : all) {
    CAPTURE(each.name);
    const auto done = ranks_that_may_share(2, bench,
                                           {each.name, "--backend", "nccl", "--share_gpus", "-b", "1K", "-e", "1K",
                                            "-r", "1", "-n", "2", "-m", "2", "-w", "1"});
    CHECK_MESSAGE(done.status == 0, (done.out + done.err));
    const auto row = done.out.find(each.row);
    REQUIRE_MESSAGE(row != std::string::npos, done.out);
    const auto line = done.out.substr(row, done.out.find('\n', row) - row);
    CHECK_MESSAGE(line.ends_with("  " + each.in_place), line);
    CHECK_MESSAGE(contains(done.out, "# Out of bounds values : 0 OK"), done.out);
  }
}

TEST_CASE("gpu/ranks: the examples say what is missing, or end well") {
  for (const std::string name : {"nccl_hello", "graph", "digits_cuda"}) {
    CAPTURE(name);
    if (::access(example(name).c_str(), X_OK) != 0) continue;  // built only where cuBLAS and nvcc were found
    const auto done = run({"-n", "1", "--", example(name)});
    if (!can_run(done, 1)) {
      CHECK(contains(done.err, name + ": rank 0 (host "));
      continue;
    }
    CHECK_MESSAGE(done.status == 0, done.err);
  }
}

}  // namespace
