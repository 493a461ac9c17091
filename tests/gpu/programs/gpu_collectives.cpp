// One rank of: every collective of GPUs in every type, against the host's backend, bit by bit.
//   tutti-run -n 4 -- gpu_collectives [thin]
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/programs/both.hpp"

namespace {

using gpu_test::comparison;

/// Rank r has r more than n, or less; the layout is the same on all ranks.
std::vector<std::size_t> uneven(const comparison& all, std::size_t n) {
  std::vector<std::size_t> counts(all.ranks());
  for (std::size_t r = 0; r < counts.size(); ++r) counts[r] = n / (r + 1) + r;
  return counts;
}
std::size_t total_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// Three buffers at once, of which one is empty.
template <class T>
void coalesced(comparison& all, const std::string& of, std::size_t n) {
  std::tuple<std::vector<std::span<T>>, std::vector<tutti::cuda::device_span<T>>> lists;  // as long as their operations
  all.run<T>("all_reduce_coalesced" + of, n, 0, [&](auto& w, auto in, auto) {
    auto& list = std::get<std::vector<decltype(in)>>(lists);
    list = {in.first(n / 3), in.first(0), in.subspan(n / 3, n - n / 3)};
    return w.all_reduce_coalesced(list);
  });
}

template <class T>
void reductions(comparison& all, const std::string& type, std::size_t n) {
  const auto reduce_by = [&]<class Op>(Op with, const char* how) {
    const std::string what = "all_reduce " + type + " x " + std::to_string(n) + ", " + how;
    all.run<T>(what, n, n, [&](auto& w, auto in, auto out) { return w.all_reduce(in, out, with); });
  };
  constexpr bool complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
  constexpr bool eight = std::is_same_v<T, tutti::float8_e4m3> || std::is_same_v<T, tutti::float8_e5m2>;
  reduce_by(tutti::sum, "sum");
  if constexpr (!std::is_same_v<T, bool>)
    if (!eight || all.ranks() == 1) reduce_by(tutti::mean, "mean");  // NCCL cannot make it right: see refusals()
  if constexpr (!complex) {
    reduce_by(tutti::prod, "prod");
    reduce_by(tutti::min, "min");
    reduce_by(tutti::max, "max");
  }
  // Of 8-bit floats in a world of one NCCL has none.
  if constexpr (!complex && !std::is_same_v<T, bool>)
    if (std::is_integral_v<T> || sizeof(T) > 1 || all.ranks() > 1) reduce_by(tutti::premul_sum(2), "premul_sum");
  const std::size_t p = all.ranks();
  const std::string of = " " + type + " x " + std::to_string(n);
  all.run<T>("all_reduce in place" + of, n, 0, [](auto& w, auto in, auto) { return w.all_reduce(in); });
  for (const int root : {0, static_cast<int>(p) - 1})
    all.run<T>("reduce to " + std::to_string(root) + of, n, n,
               [&](auto& w, auto in, auto out) { return w.reduce(in, out, root); });
  all.run<T>("reduce_scatter" + of, n * p, n, [](auto& w, auto in, auto out) { return w.reduce_scatter(in, out); });
  const auto counts = uneven(all, n);
  all.run<T>("reduce_scatter_v" + of, total_of(counts), counts[static_cast<std::size_t>(all.rank())],
             [&](auto& w, auto in, auto out) { return w.reduce_scatter_v(in, out, counts); });
  coalesced<T>(all, of, n);
}

template <class T>
void movement(comparison& all, const std::string& type, std::size_t n) {
  const std::size_t p = all.ranks(), me = static_cast<std::size_t>(all.rank());
  const int last = static_cast<int>(p) - 1;
  const std::string of = " " + type + " x " + std::to_string(n);
  all.run<T>("broadcast" + of, n, 0, [&](auto& w, auto in, auto) { return w.broadcast(in, last); });
  all.run<T>("all_gather" + of, n, n * p, [](auto& w, auto in, auto out) { return w.all_gather(in, out); });
  all.run<T>("gather" + of, n, n * p, [&](auto& w, auto in, auto out) { return w.gather(in, out, last); });
  all.run<T>("scatter" + of, n * p, n, [&](auto& w, auto in, auto out) { return w.scatter(in, out, last); });
  all.run<T>("all_to_all" + of, n * p, n * p, [](auto& w, auto in, auto out) { return w.all_to_all(in, out); });
  const auto counts = uneven(all, n);
  const std::size_t total = total_of(counts);
  all.run<T>("all_gather_v" + of, counts[me], total,
             [&](auto& w, auto in, auto out) { return w.all_gather_v(in, out, counts); });
  all.run<T>("gather_v" + of, counts[me], total,
             [&](auto& w, auto in, auto out) { return w.gather_v(in, out, counts, 0); });
  all.run<T>("scatter_v" + of, total, counts[me],
             [&](auto& w, auto in, auto out) { return w.scatter_v(in, out, counts, 0); });
  const std::vector<std::size_t> mine(p, counts[me]);  // rank r sends its count to everyone
  all.run<T>("all_to_all_v" + of, counts[me] * p, total,
             [&](auto& w, auto in, auto out) { return w.all_to_all_v(in, mine, out, counts); });
}

/// A ring of messages: on GPUs both of a rank in one launch.
void messages(comparison& all, gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus) {
  const int n = world.size(), next = (world.rank() + 1) % n, before = (world.rank() + n - 1) % n;
  if (n == 1) return;
  const int device = gpus.backend().device();
  using numbers = gpu_test::both<float>;
  const numbers out{device, world.rank(), 4000, numbers::filled::operands};
  const numbers in{device, world.rank(), 4000, numbers::filled::poison};
  auto sent = world.send(out.on_host(), next);
  world.recv(in.on_host(), before).wait();
  sent.wait();
  auto exchange = [&] {
    tutti::nccl_group together{gpus};
    return std::pair{gpus.send(out.on_device(), next), gpus.recv(in.on_device(), before)};
  }();
  exchange.first.wait();
  exchange.second.wait();
  all.judge("send and recv in a group", in.differences());
}

/// An operation comes after what its stream held, and a stream after the operation it was joined to, with no host
/// between.
void stream_order(comparison& all, gpu_test::gpu_communicator& gpus) {
  constexpr std::size_t count = std::size_t{1} << 20;
  const tutti::cuda::stream compute{gpus.backend().device()}, later{gpus.backend().device()};
  const tutti::cuda::device_memory<std::uint32_t> data{gpus.backend().device(), count};
  std::vector<std::uint32_t> host(count);
  std::size_t wrong = 0;
  for (std::uint32_t round = 1; round <= 5; ++round) {
    gpu_test::check(cudaMemsetAsync(data.span().data(), static_cast<int>(round), count * 4, compute.native()),
                    "memset");
    gpus.all_reduce(data.span(), tutti::max, {.stream = compute}).join(later);
    gpu_test::check(cudaMemcpyAsync(host.data(), data.span().data(), count * 4, cudaMemcpyDeviceToHost, later.native()),
                    "memcpy");
    gpu_test::check(cudaStreamSynchronize(later.native()), "cudaStreamSynchronize");
    for (const std::uint32_t x : host) wrong += x != round * 0x01010101U;
  }
  all.judge("the order of streams", wrong);
}

/// Memory of NCCL's own, which it takes into windows where it can.
void windows(comparison& all, gpu_test::host_communicator& world, gpu_test::gpu_communicator& gpus) {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{300'000}}) {
    const tutti::nccl_memory<float> in{gpus, count}, out{gpus, count * all.ranks()};
    const gpu_test::both<float> from{gpus.backend().device(), all.rank(), count,
                                     gpu_test::both<float>::filled::operands};
    std::vector<float> host(out.span().size()), got(host.size());
    gpu_test::check(cudaMemcpy(in.span().data(), from.on_host().data(), count * 4, cudaMemcpyHostToDevice),
                    "cudaMemcpy");
    world.all_reduce(from.on_host()).wait();
    world.all_gather(from.on_host(), host).wait();
    gpus.all_reduce(in.span()).wait();
    gpus.all_gather(in.span(), out.span()).wait();
    gpu_test::check(cudaMemcpy(got.data(), out.span().data(), got.size() * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    all.judge(in.registered() ? "in registered memory" : "in NCCL's memory", host == got ? 0 : host.size() * 4);
  }
}

template <class T, class Op>
void refusal(comparison& all, gpu_test::gpu_communicator& gpus, Op with, const char* what) {
  const tutti::cuda::device_memory<T> data{gpus.backend().device(), 4};
  std::size_t wrong = 1;
  try {
    gpus.all_reduce(data.span(), with).wait();
  } catch (const tutti::error& e) {
    wrong = e.kind() == tutti::errc::unsupported ? 0 : 2;
  }
  all.judge(std::string(what) + " is refused", wrong);
}
void refusals(comparison& all, gpu_test::gpu_communicator& gpus) {
  refusal<short>(all, gpus, tutti::sum, "a sum of 16-bit integers");
  if (all.ranks() == 1) return;
  refusal<tutti::float8_e4m3>(all, gpus, tutti::mean, "a mean of float8_e4m3");
  refusal<tutti::float8_e5m2>(all, gpus, tutti::mean, "a mean of float8_e5m2");
}

int run(bool thin) {
  auto world = tutti::init();
  const int devices = gpu_test::devices_here();
  if (world.all_reduce(devices, tutti::min).wait() == 0) return gpu_test::skipped;
  auto gpus = tutti::gpu_world(world, gpu_test::options_for(world, devices));
  gpu_test::check(cudaSetDevice(gpus.backend().device()), "cudaSetDevice");
  comparison all{world, gpus};
  const auto of = [&]<class T>(T*, const char* type) {
    for (const std::size_t n : thin ? std::vector<std::size_t>{1000} : std::vector<std::size_t>{0, 1, 1000, 65537}) {
      reductions<T>(all, type, n);
      movement<T>(all, type, n);
    }
  };
  of(static_cast<bool*>(nullptr), "bool");
  of(static_cast<std::int8_t*>(nullptr), "int8");
  of(static_cast<std::uint8_t*>(nullptr), "uint8");
  of(static_cast<std::int32_t*>(nullptr), "int32");
  of(static_cast<std::uint32_t*>(nullptr), "uint32");
  of(static_cast<std::int64_t*>(nullptr), "int64");
  of(static_cast<std::uint64_t*>(nullptr), "uint64");
  of(static_cast<tutti::float16*>(nullptr), "float16");
  of(static_cast<tutti::bfloat16*>(nullptr), "bfloat16");
  of(static_cast<tutti::float8_e4m3*>(nullptr), "float8_e4m3");
  of(static_cast<tutti::float8_e5m2*>(nullptr), "float8_e5m2");
  of(static_cast<float*>(nullptr), "float");
  of(static_cast<double*>(nullptr), "double");
  of(static_cast<std::complex<float>*>(nullptr), "complex float");
  of(static_cast<std::complex<double>*>(nullptr), "complex double");
  messages(all, world, gpus);
  stream_order(all, gpus);
  windows(all, world, gpus);
  refusals(all, gpus);
  gpus.barrier().wait();
  const int wrong = world.all_reduce(all.wrong()).wait();
  if (world.rank() == 0) std::printf("%d calls on %d ranks, %d wrong\n", all.calls(), world.size(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(argc > 1 && std::string_view{argv[1]} == "thin");
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
