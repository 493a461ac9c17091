#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <tutti/cuda/kernels/adamw.cuh>
#include <tutti/cuda/kernels/compress.cuh>
#include <tutti/cuda/kernels/divide.cuh>
#include <tutti/cuda/kernels/pack.cuh>
#include <tutti/cuda/kernels/sum_buffers.cuh>
#include <tutti/cuda/kernels/unscale.cuh>
#include <tutti/cuda/runtime.hpp>
#include <tutti/train/update_rule.hpp>

// Measures the kernels beside a copy on the same GPU in the same run. A byte counts once if it is read and once if it
// is written. gpu-kernels [--elements N] [--json FILE]

namespace {

namespace cuda = tutti::cuda;
using tutti::bfloat16, tutti::float16, tutti::float8_e4m3, tutti::dtype;

void must(::cudaError_t e) { cuda::check<cuda::runtime>(static_cast<cuda::result>(e), "a call of the benchmark", 0); }

// A factor by which numbers can be multiplied or divided some hundred times without overflow or underflow.
constexpr double settled = 1.0001;

/// Memory for `count` elements, with values of ordinary size in all types but double.
template <class T>
class array {
 public:
  explicit array(std::size_t count) : count_(count) {
    must(::cudaMalloc(&memory_, count * sizeof(T)));
    must(::cudaMemset(memory_, 0x3c, count * sizeof(T)));
    must(::cudaDeviceSynchronize());
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  ~array() { static_cast<void>(::cudaFree(memory_)); }
  T* data() const { return static_cast<T*>(memory_); }
  cuda::device_span<T> span() const { return {data(), count_}; }
  cuda::device_span<const T> view() const { return {data(), count_}; }

 private:
  std::size_t count_;
  void* memory_ = nullptr;
};

struct line {
  std::string kernel;
  double bytes = 0, microseconds = 0, least = 0, most = 0;
  double rate() const { return bytes / microseconds * 1e-3; }  // GB/s
};

class bench {
 public:
  explicit bench(::cudaStream_t s) : stream_(s) {
    must(::cudaEventCreate(&begin_));
    must(::cudaEventCreate(&end_));
  }

  /// Returns the median of 31 measurements of 8 runs each, which hide their launches. `bytes` are those that a run must
  /// read and write.
  template <class F>
  void run(const char* kernel, double bytes, F f) {
    constexpr int runs = 8;
    std::vector<double> times;
    for (int i = 0; i < 34; ++i) {
      must(::cudaEventRecord(begin_, stream_));
      for (int k = 0; k < runs; ++k) f();
      must(::cudaEventRecord(end_, stream_));
      must(::cudaEventSynchronize(end_));
      float milliseconds = 0;
      must(::cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (i >= 3) times.push_back(static_cast<double>(milliseconds) * 1e3 / runs);
    }
    std::sort(times.begin(), times.end());
    lines_.push_back({kernel, bytes, times[times.size() / 2], times.front(), times.back()});
    const line& l = lines_.back();
    std::printf("%-32s %10.1f us %9.1f GB/s %6.1f %% of copy   (%.1f to %.1f us)\n", kernel, l.microseconds, l.rate(),
                100 * of_copy(l), l.least, l.most);
    std::fflush(stdout);
  }

  void write(const char* path, const char* device, std::size_t elements) const {
    std::FILE* f = std::fopen(path, "w");
    if (!f) throw tutti::usage_error(std::string("cannot write ") + path);
    for (const line& l : lines_)
      std::fprintf(f,
                   "{\"bench\":\"gpu_kernels\",\"device\":\"%s\",\"elements\":%zu,\"kernel\":\"%s\",\"bytes\":%.0f,"
                   "\"us\":%.2f,\"us_min\":%.2f,\"us_max\":%.2f,\"gb_s\":%.1f,\"of_copy\":%.4f}\n",
                   device, elements, l.kernel.c_str(), l.bytes, l.microseconds, l.least, l.most, l.rate(), of_copy(l));
    if (std::fclose(f) != 0) throw tutti::usage_error(std::string("cannot write ") + path);
  }

 private:
  double of_copy(const line& l) const { return l.rate() / lines_.front().rate(); }

  ::cudaStream_t stream_;
  ::cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<line> lines_;
};

/// Returns the tensors of a transformer with 12 layers of width 768, contiguous and repeated until they fill `bytes`.
std::vector<cuda::tensor_slot> tensors_in(std::byte* memory, std::size_t bytes) {
  std::vector<cuda::tensor_slot> slots;
  constexpr std::size_t width = 768;
  for (std::size_t at = 0;;)
    for (const std::size_t n : {width, width, 3 * width * width, 3 * width, width * width, width, width, width,
                                4 * width * width, 4 * width, 4 * width * width, width}) {
      if (at + 4 * n > bytes) return slots;
      slots.push_back({memory + at, 4 * n, at});
      at += (4 * n + 255) / 256 * 256;
    }
}

template <class T>
void divisions(bench& b, const char* kernel, ::cudaStream_t s, std::size_t n, const array<float>& a) {
  const std::size_t count = n * 4 / sizeof(T);
  b.run(kernel, 2.0 * static_cast<double>(count * sizeof(T)),
        [&] { static_cast<void>(cuda::divider::divide(a.data(), count, tutti::dtype_of<T>(), settled, s)); });
}

template <class T>
void compression(bench& b, const std::string& type, ::cudaStream_t s, std::size_t n, const array<float>& from,
                 const array<float>& left, const array<T>& to) {
  const double narrow = sizeof(T), count = static_cast<double>(n);
  b.run(("compress " + type).c_str(), count * (4 + narrow), [&] { cuda::compress<T>(from.view(), to.span(), s); });
  b.run(("compress " + type + " feedback").c_str(), count * (12 + narrow),
        [&] { cuda::compress<T>(from.view(), to.span(), s, left.span(), 64); });
  b.run(("decompress " + type).c_str(), count * (4 + narrow), [&] { cuda::decompress<T>(to.view(), left.span(), s); });
}

void run_all(bench& b, ::cudaStream_t s, std::size_t n) {
  const array<float> w(n), x(n), y(n), z(n);
  const double count = static_cast<double>(n);
  b.run("copy (cudaMemcpyAsync)", 8 * count,
        [&] { must(::cudaMemcpyAsync(x.data(), w.data(), 4 * n, ::cudaMemcpyDeviceToDevice, s)); });

  const auto bytes_of = [n](const array<float>& a) {
    return cuda::device_span<std::byte>{reinterpret_cast<std::byte*>(a.data()), 4 * n};
  };
  const auto slots = tensors_in(bytes_of(w).data(), 4 * n);
  double packed = 0;
  for (const cuda::tensor_slot& t : slots) packed += static_cast<double>(t.bytes);
  b.run(("pack " + std::to_string(slots.size()) + " tensors").c_str(), 2 * packed,
        [&] { cuda::pack(slots, bytes_of(x), s); });
  b.run(("unpack " + std::to_string(slots.size()) + " tensors").c_str(), 2 * packed,
        [&] { cuda::unpack(slots, bytes_of(x), s); });

  const array<cuda::gradient_measure> measure(1);
  std::vector<cuda::device_span<float>> buckets;
  std::vector<cuda::device_span<bfloat16>> narrow;
  for (std::size_t at = 0; at < n; at += std::size_t{1} << 22) {
    const std::size_t some = std::min(std::size_t{1} << 22, n - at);
    buckets.push_back(w.span().subspan(at, some));
    narrow.push_back({reinterpret_cast<bfloat16*>(w.data() + at), 2 * some});
  }
  const array<cuda::gradient_measure> workspace(cuda::unscale_workspace<bfloat16>(narrow));
  b.run("unscale float", 8 * count,
        [&] { cuda::unscale<float>(buckets, 1 / settled, workspace.span(), measure.data(), s); });
  b.run("unscale bfloat16", 8 * count,
        [&] { cuda::unscale<bfloat16>(narrow, 1 / settled, workspace.span(), measure.data(), s); });
  b.run("norm float", 4 * count, [&] { cuda::unscale<float>(buckets, 1, workspace.span(), measure.data(), s); });
  b.run("norm bfloat16", 4 * count, [&] { cuda::unscale<bfloat16>(narrow, 1, workspace.span(), measure.data(), s); });

  const array<bfloat16> b16(n);
  const array<float8_e4m3> b8(n);
  compression<bfloat16>(b, "bfloat16", s, n, w, x, b16);
  compression<float8_e4m3>(b, "float8_e4m3", s, n, w, x, b8);

  const cuda::adamw_shard<bfloat16> shard{w.span(), x.span(), y.span(), z.view(), b16.span()};
  cuda::adamw_shard<bfloat16> without = shard;
  without.parameters = {};
  b.run("adamw", 28 * count, [&] { cuda::adamw(tutti::train::adamw{}, 1, without, s); });
  b.run("adamw with bfloat16", 30 * count,
        [&] { cuda::adamw(tutti::train::adamw{}, 1, shard, s, {.measured = measure.data()}); });

  const cuda::device_span<const float> wide[] = {w.view(), x.view(), y.view()};
  b.run("sum_buffers 3 float", 16 * count, [&] { cuda::sum_buffers<float>(wide, z.span(), s); });
  std::vector<cuda::device_span<const bfloat16>> eight;
  for (std::size_t i = 0; i < 8; ++i)
    eight.push_back(
        {reinterpret_cast<bfloat16*>(i % 2 ? w.data() : x.data()) + i / 2 * (n / 2 / 8 * 8), n / 2 / 8 * 8});
  b.run("sum_buffers 8 bfloat16", 9 * 2.0 * static_cast<double>(eight[0].size()),
        [&] { cuda::sum_buffers<bfloat16>(eight, b16.span().first(eight[0].size()), s); });

  divisions<float>(b, "divide float", s, n, w);
  divisions<bfloat16>(b, "divide bfloat16", s, n, w);
  divisions<float16>(b, "divide float16", s, n, w);
  divisions<double>(b, "divide double", s, n, w);
  divisions<float8_e4m3>(b, "divide float8_e4m3", s, n, w);
}

}  // namespace

int main(int argc, char** argv) try {
  std::size_t elements = std::size_t{1} << 26;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (i + 1 < argc && std::strcmp(argv[i], "--json") == 0) {
      json = argv[++i];
    } else if (i + 1 < argc && std::strcmp(argv[i], "--elements") == 0) {
      elements = std::max<std::size_t>(std::strtoull(argv[++i], nullptr, 10) / 64 * 64, 1 << 16);
    } else {
      std::fprintf(stderr, "gpu-kernels [--elements N] [--json FILE]\n");
      return 2;
    }
  }
  int devices = 0;
  if (const ::cudaError_t e = ::cudaGetDeviceCount(&devices); e != ::cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU here (%s)\n", ::cudaGetErrorString(e));
    return 77;
  }
  ::cudaDeviceProp about{};
  must(::cudaGetDeviceProperties(&about, 0));
  ::cudaStream_t s = nullptr;
  must(::cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  std::printf("%s, %zu floats in each array\n", about.name, elements);
  bench b{s};
  run_all(b, s, elements);
  if (json) b.write(json, about.name, elements);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "gpu-kernels: %s\n", e.what());
  return 1;
}
