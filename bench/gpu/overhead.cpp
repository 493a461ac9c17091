// Measures the cost of an all_reduce on GPUs for the host and the device, beside the same hand-written calls of NCCL.
//
//   tutti-run -n 2 --devices 0,1 -- bench-nccl-overhead [file for JSON lines [bytes]]       (or alone;
// TUTTI_SHARE_GPUS=1: ranks may share a GPU)
//
// With `bytes`, measures the device only, up to this size; else both, up to 256 MiB. Host: nanoseconds of the call of
// an all_reduce of one float, which is issued and joined to the user's stream, in batches of 64. Device: microseconds
// of an all_reduce in a sequence, by events, and nccl-tests' bandwidths of that. Out of place, as in place NCCL has
// nothing to do for one rank.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/tutti.hpp>

#include "raw_nccl.hpp"

namespace {

using bench::raw_calls, bench::raw_nccl, bench::timed_event;
using gpu_communicator = tutti::communicator<tutti::nccl>;

struct place {
  tutti::communicator<>& world;
  tutti::cuda::stream& stream;
  const float* in;
  float* out;
  std::ofstream& json;
  std::size_t most;  // elements
  bool of_host;
};

/// Returns the median of batches on the slowest rank.
template <class F>
double host_ns(const place& at, F issue) {
  constexpr int batch = 64, batches = 200;
  std::vector<double> each;
  for (int b = -20; b < batches; ++b) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) issue(std::size_t{1});
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    bench::check(cudaStreamSynchronize(at.stream.native()), "cudaStreamSynchronize");
    at.world.engine().poll();  // frees operations that have ended, which is not timed
    if (b >= 0) each.push_back(spent.count() / batch);
  }
  std::nth_element(each.begin(), each.begin() + batches / 2, each.end());
  return at.world.all_reduce(each[batches / 2], tutti::max).wait();
}

template <class F>
double device_us(const place& at, std::size_t count, F issue) {
  const int rounds = count > 1 << 22 ? 20 : 100;
  for (int i = 0; i < 5; ++i) issue(count);
  bench::check(cudaStreamSynchronize(at.stream.native()), "cudaStreamSynchronize");
  at.world.barrier().wait();
  const timed_event start, end;
  start.record(at.stream.native());
  for (int i = 0; i < rounds; ++i) issue(count);
  end.record(at.stream.native());
  end.wait();
  at.world.engine().poll();
  return at.world.all_reduce(start.microseconds_to(end) / rounds, tutti::max).wait();
}

void tell(const place& at, const std::string& what, std::size_t bytes, double raw, double ours, const char* unit) {
  if (at.world.rank() != 0) return;
  std::printf("%-22s %12zu  raw %12.1f %s  tutti %12.1f %s  %+9.1f %s  %+7.2f %%", what.c_str(), bytes, raw, unit, ours,
              unit, ours - raw, unit, 100 * (ours / raw - 1));
  if (at.json)
    at.json << "{\"bench\":\"nccl_overhead\",\"what\":\"" << what << "\",\"ranks\":" << at.world.size()
            << ",\"bytes\":" << bytes << ",\"unit\":\"" << unit << "\",\"raw\":" << raw << ",\"tutti\":" << ours;
  if (std::string_view{unit} == "us") {  // as in nccl-tests: one rank has no bus bandwidth
    const double bus = 2.0 * (at.world.size() - 1) / at.world.size();
    const double by_hand = static_cast<double>(bytes) / raw / 1e3, by_us = static_cast<double>(bytes) / ours / 1e3;
    std::printf("  algbw %.2f, %.2f  busbw %.2f, %.2f GB/s", by_hand, by_us, by_hand * bus, by_us * bus);
    if (at.json)
      at.json << ",\"raw_algbw_gbs\":" << by_hand << ",\"algbw_gbs\":" << by_us
              << ",\"raw_busbw_gbs\":" << by_hand * bus << ",\"busbw_gbs\":" << by_us * bus;
  }
  std::puts("");
  std::fflush(stdout);
  if (at.json) at.json << "}" << std::endl;
}

void compare(const place& at, gpu_communicator& gpus, raw_nccl& raw, const std::string& calls) {
  cudaStream_t const user = at.stream.native();
  const auto by_hand = [&](std::size_t count) { raw.all_reduce(at.in, at.out, count, ncclSum, user); };
  const auto ours = [&](std::size_t count) {
    const tutti::cuda::device_span<const float> in{at.in, count};
    gpus.all_reduce(in, tutti::cuda::device_span<float>{at.out, count}, tutti::sum, {.stream = user}).join(user);
  };
  if (at.world.rank() == 0) {
    std::printf("# calls: %s\n", calls.c_str());
  }
  if (at.of_host) {
    const double alone =
        host_ns(at, [&](std::size_t count) { raw.all_reduce_alone(at.in, at.out, count, ncclSum, user); });
    const double edges = host_ns(at, by_hand), tutti_ns = host_ns(at, ours);
    tell(at, "host/" + calls + "/call", 4, alone, tutti_ns, "ns");
    tell(at, "host/" + calls + "/with edges", 4, edges, tutti_ns, "ns");
  }
  for (std::size_t count = 1 << 10; count <= at.most; count <<= 4)
    tell(at, "device/" + calls, count * sizeof(float), device_us(at, count, by_hand), device_us(at, count, ours), "us");
}

void run(const char* json_path, const char* bytes) {
  const std::size_t most = bytes ? std::strtoull(bytes, nullptr, 10) / sizeof(float) : std::size_t{1} << 26;
  if (most < 1 << 10) throw std::runtime_error(std::string{bytes} + " is no number of bytes from 4096 on");
  auto world = tutti::init();
  tutti::nccl_options how;
  if (std::getenv("TUTTI_SHARE_GPUS")) how.sharing = tutti::device_sharing::allowed;
  auto nonblocking = tutti::gpu_world(world, how);
  how.calls = tutti::nccl_calls::blocking;
  auto blocking = tutti::gpu_world(world, how);
  const int device = blocking.backend().device();
  bench::check(cudaSetDevice(device), "cudaSetDevice");
  const tutti::cuda::device_memory<float> in{device, most}, out{device, most};
  bench::check(cudaMemset(in.span().data(), 0, in.span().size_bytes()), "cudaMemset");
  tutti::cuda::stream stream{device};
  std::ofstream json;
  if (world.rank() == 0 && json_path) json.open(json_path);
  if (!json_path) json.setstate(std::ios::failbit);
  const place at{world, stream, in.span().data(), out.span().data(), json, most, bytes == nullptr};
  {
    raw_nccl raw{world, device, raw_calls::blocking};
    compare(at, blocking, raw, "blocking");
  }
  {
    raw_nccl raw{world, device, raw_calls::nonblocking};
    compare(at, nonblocking, raw, "nonblocking");
  }
  world.barrier().wait();
}

}  // namespace

int main(int argc, char** argv) try {
  run(argc > 1 ? argv[1] : nullptr, argc > 2 ? argv[2] : nullptr);
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench-nccl-overhead: %s\n", e.what());
  return 1;
}
