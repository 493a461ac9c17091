// Measures the kernels of reductions, in GB/s of the bytes that they read and write, beside memcpy.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tutti/core/kernels/copy.hpp>
#include <tutti/core/kernels/fold.hpp>

namespace {

using namespace tutti::detail;
using tutti::instruction_set;
using tutti::stores;

constexpr std::size_t sizes[] = {8 << 10, 256 << 10, 4 << 20, 128 << 20};

/// A block of memory, page-aligned and touched.
struct block {
  explicit block(std::size_t bytes) : storage(bytes + 4096) { std::memset(storage.data(), 0, storage.size()); }
  std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(storage.data());
    return storage.data() + (4096 - at % 4096) % 4096;
  }
  std::vector<std::byte> storage;
};

void count_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

template <class Copy>
void copying(benchmark::State& state, std::size_t bytes, Copy copy) {
  block from(bytes), to(bytes);
  for (auto _ : state) {
    copy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * bytes);
}

/// Computes out = a + b; with two outputs, both are also the inputs.
void folding(benchmark::State& state, fold_kernel kernel, std::size_t element, std::size_t bytes, int outputs,
             stores how) {
  block a(bytes), b(bytes), out(outputs == 1 ? bytes : 0);
  const void* const in[] = {a.data(), b.data()};
  void* const one[] = {out.data()};
  void* const two[] = {a.data(), b.data()};
  for (auto _ : state) {
    kernel(in, 2, outputs == 1 ? one : two, outputs, bytes / element, how, 2);
    benchmark::ClobberMemory();
  }
  count_bytes(state, (2 + static_cast<std::size_t>(outputs)) * bytes);
}

template <class T, class Op>
void add(const std::string& title, instruction_set level) {
  for (const std::size_t bytes : sizes)
    for (const int outputs : {1, 2})
      for (const auto how : {stores::ordinary, stores::streaming}) {
        const std::string full = title + "/" + name(level) + (outputs == 1 ? "/out" : "/in_place_of_both") +
                                 (how == stores::ordinary ? "/" : "/streaming/") + std::to_string(bytes);
        benchmark::RegisterBenchmark(full.c_str(), [=](benchmark::State& s) {
          folding(s, fold_kernel_for<T, Op>(level), sizeof(T), bytes, outputs, how);
        });
      }
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::size_t bytes : sizes)
    benchmark::RegisterBenchmark(("memcpy/" + std::to_string(bytes)).c_str(), [=](benchmark::State& s) {
      copying(s, bytes, [](void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); });
    });
  for (const auto level : {instruction_set::baseline, instruction_set::avx2, instruction_set::avx512}) {
    if (level > tutti::best_instruction_set()) continue;
    for (const std::size_t bytes : sizes)
      benchmark::RegisterBenchmark(
          (std::string("copy_streaming/") + name(level) + "/" + std::to_string(bytes)).c_str(),
          [=](benchmark::State& s) {
            copying(s, bytes, [=](void* to, const void* from, std::size_t n) { copy_streaming(to, from, n, level); });
          });
    add<float, sum_op>("sum_f32", level);
    add<double, sum_op>("sum_f64", level);
    add<tutti::float16, sum_op>("sum_f16", level);
    add<tutti::bfloat16, sum_op>("sum_bf16", level);
    add<float, max_op>("max_f32", level);
  }
  if (tutti::best_instruction_set() == instruction_set::avx512_bf16)
    add<tutti::bfloat16, sum_op>("sum_bf16", instruction_set::avx512_bf16);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
