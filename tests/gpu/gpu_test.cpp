#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/backend/nccl/dlopen.hpp>
#include <tutti/bootstrap/nccl.hpp>
#include <tutti/bootstrap/survivors.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <tutti/store/memory_store.hpp>
#include <tutti/tutti.hpp>

#include <support/docs_examples.hpp>

// With the real libraries. Most machines that build this have no GPU: then that is what must be said.

namespace {

using tutti::cuda::device_memory;
using tutti::cuda::result;

TEST_CASE("gpu: one rank on the first GPU, or a refusal that says what is missing") {
  int devices = 0;
  const result found = tutti::cuda::runtime::device_count(devices);
  int version = 0;
  REQUIRE(tutti::nccl_api::version(version) == tutti::nccl_result::success);
  CHECK(version >= tutti::oldest_nccl);
  tutti::run_threads(1, [&](tutti::communicator<tutti::threads>& world) {
    if (found != result::success) {
      try {
        (void)tutti::gpu_world(world);
        FAIL("a world of GPUs on a machine without one");
      } catch (const tutti::error& e) {
        const std::string words = e.what();
        MESSAGE(words);
        CHECK(e.kind() == tutti::errc::device);
        CHECK(words.find("rank 0 (host ") == 0);
        CHECK(words.find("cudaGetDeviceCount failed on device 0: cudaError") != std::string::npos);
      }
      return;
    }
    auto gpus = tutti::gpu_world(world);
    const device_memory<float> data{0, 1000};
    gpus.all_reduce(data.span(), tutti::mean).wait();
    gpus.broadcast(data.span(), 0).join({});
    gpus.barrier().wait();
    CHECK(gpus.backend().failure().ok());
  });
}

TEST_CASE("gpu: the same libraries, loaded at run time, have all that is called") {
  CHECK(tutti::cuda::runtime_dlopen::missing() == "");
  CHECK(tutti::nccl_dlopen::missing() == "");
  int linked = 0, loaded = 0;
  CHECK(tutti::nccl_api::version(linked) == tutti::nccl_result::success);
  CHECK(tutti::nccl_dlopen::version(loaded) == tutti::nccl_result::success);
  CHECK(loaded == linked);
  for (const auto f : {tutti::nccl_feature::memory, tutti::nccl_feature::windows, tutti::nccl_feature::shrink,
                       tutti::nccl_feature::exchange, tutti::nccl_feature::revoke})
    for (const bool has : {tutti::nccl_dlopen::has(f), tutti::nccl_api::has(f)})
      CHECK(has == (linked >= tutti::nccl_since(f)));
  CHECK(!tutti::nccl_dlopen::has(tutti::nccl_feature::grow));  // whatever the library has, nothing here calls it
  CHECK(!tutti::nccl_api::has(tutti::nccl_feature::grow));
}

// The examples of docs/gpu.md.
[[maybe_unused]] void one_operation(float* pointer, std::size_t count, CUstream_st* compute, CUstream_st* update) {
  auto world = tutti::init();
  auto gpus = tutti::gpu_world(world);
  tutti::cuda::device_span<float> gradient{pointer, count};

  auto running = gpus.all_reduce(gradient, tutti::mean, {.stream = compute});
  std::move(running).join(update);
}
[[maybe_unused]] auto a_group(tutti::communicator<tutti::nccl>& gpus, tutti::cuda::device_span<float> mine,
                              tutti::cuda::device_span<float> theirs, int next, int before) {
  auto exchange = [&] {
    tutti::nccl_group together{gpus};
    return std::pair{gpus.send(mine, next), gpus.recv(theirs, before)};
  }();
  return exchange;
}

double samples(const std::vector<float>& batch) { return static_cast<double>(batch.size()); }
struct network {
  [[nodiscard]] std::vector<tutti::grad::parameter_shape> gradient_shapes() const { return {{"w", 10}}; }
  template <class Ready>
  void backward(const std::vector<float>&, const std::vector<tutti::cuda::device_span<float>>&, CUstream_st*,
                Ready ready) const {
    ready(0);
  }
  void step(const std::vector<tutti::cuda::device_span<float>>&, tutti::cuda::device_span<float>, CUstream_st*) const {}
};
[[maybe_unused]] void a_step(tutti::communicator<>& world, tutti::communicator<tutti::nccl>& gpus, const network& net,
                             const std::vector<std::vector<float>>& data, CUstream_st* compute) {
  tutti::grad::device_reducer reducer{gpus, world, net.gradient_shapes()};
  for (const auto& batch : data) {
    auto pass = reducer.begin(samples(batch), compute);
    net.backward(batch, reducer.gradients(), compute, [&](std::size_t i) { pass.ready(i); });
    if (pass.finish().join(compute) == tutti::grad::step::apply)
      net.step(reducer.gradients(), reducer.found_inf(), compute);
  }
}

[[maybe_unused]] void a_graph(tutti::communicator<tutti::nccl>& gpus, tutti::cuda::device_span<float> gradient,
                              CUstream_st* compute, cudaGraph_t& step, void (*backward)(CUstream_st*)) {
  cudaStreamBeginCapture(compute, cudaStreamCaptureModeGlobal);
  backward(compute);
  gpus.all_reduce(gradient, tutti::mean, {.stream = compute}).join(compute);
  cudaStreamEndCapture(compute, &step);
}
[[maybe_unused]] void go_on(tutti::communicator<tutti::nccl>& gpus, tutti::memory_store& store,
                            std::span<const int> lost, tutti::communicator<> (*join_again)(const std::vector<int>&)) {
  using namespace std::chrono_literals;
  const auto left = tutti::agree_on_survivors(store, gpus.rank(), gpus.size(), lost, tutti::after(10s));
  auto world = join_again(left);
  auto fewer = tutti::shrink(gpus, world);
  const tutti::nccl_memory<float> arena{fewer, 1000};
}

TEST_CASE("gpu: the examples of the docs are compiled here") {
  const std::string here = docs_examples::bare(docs_examples::text_of(TUTTI_SOURCE_DIR "/tests/gpu/gpu_test.cpp"));
  const auto blocks = docs_examples::of(TUTTI_SOURCE_DIR "/docs/gpu.md");
  CHECK(blocks.size() == 5);
  for (const std::string& block : blocks)
    CHECK_MESSAGE(here.find(docs_examples::bare(block)) != std::string::npos, block);
}

}  // namespace
