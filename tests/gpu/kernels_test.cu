#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <support/gpu_array.cuh>
#include <support/kernels_on_host.hpp>
#include <tutti/cuda/kernels/kernels.cuh>
#include <tutti/train/update_rule.hpp>

// The kernels on a GPU: random numbers of any kind, any alignment, outputs poisoned first. Results must have the bits
// of the same code on the host, which tests/cuda/kernels_test.cpp compares with float64. Exit status 77: no GPU.

namespace {

namespace cuda = tutti::cuda;
namespace detail = tutti::cuda::detail;
using tutti::bfloat16, tutti::float16, tutti::float8_e4m3, tutti::float8_e5m2, tutti::dtype;
using namespace on_gpu;

// The last is more than one round of a large device.
std::vector<std::size_t> lengths{0, 1, 7, 33, 4096, 100003, 6000001};
bool covered(std::size_t n, std::size_t skip) { return n < 1000000 || skip == 1; }

template <class T>
void divides(::cudaStream_t s) {
  for (const std::size_t n : lengths)
    for (const std::size_t skip : {0u, 1u, 5u})
      for (const double divisor : {3.0, 8.0}) {
        if (!covered(n, skip)) continue;
        auto wanted = random<T>(n, n + skip, true);
        const array<T> data{wanted, skip};
        const tutti::status done = cuda::divider::divide(data.data(), n, tutti::dtype_of<T>(), divisor, s);
        for (T& x : wanted)
          x = T(static_cast<detail::computed_in<T>>(x) / static_cast<detail::computed_in<T>>(divisor));
        expect(done.ok() && same(data.get(), wanted), "divide", type_name<T>(), n, skip);
      }
}

template <class From, class To>
void casts(::cudaStream_t s) {
  using number = typename detail::cast_elements<From, To>::number;
  const std::size_t n = 100003;
  for (const std::size_t skip : {0u, 1u}) {
    const auto values = random<From>(n, skip + 1, true);
    const array<From> from{values, skip};
    const array<To> to{n, 1};
    const tutti::status done =
        cuda::kernels::cast(from.data(), tutti::dtype_of<From>(), to.data(), tutti::dtype_of<To>(), n, 1.0 / 3, s);
    std::vector<To> wanted;
    for (const From x : values)
      wanted.push_back(To(static_cast<detail::computed_in<To>>(
          static_cast<number>(static_cast<detail::computed_in<From>>(x)) * static_cast<number>(1.0 / 3))));
    expect(done.ok() && same(to.get(), wanted), "cast", type_name<To>(), n, skip);
  }
}

template <class From, class To>
void remembers(::cudaStream_t s) {
  const std::size_t n = 100003;
  for (const std::size_t skip : {0u, 1u}) {
    const auto values = random<From>(n, skip + 5);
    auto rest = random<float>(n, skip + 6);
    const array<From> from{values, skip};
    const array<float> left{rest, 1};
    const array<To> to{n, skip};
    std::vector<To> wanted(n);
    const tutti::status done = cuda::kernels::compress(from.data(), tutti::dtype_of<From>(), left.data(), to.data(),
                                                       tutti::dtype_of<To>(), n, 32, s);
    on_host::sweep_all(detail::compressed_elements<To, From>{values.data(), rest.data(), wanted.data(), 32, 1.0f / 32},
                       n);
    expect(done.ok() && same(to.get(), wanted), "kernels::compress", type_name<To>(), n, skip);
    expect(same(left.get(), rest), "what kernels::compress left", type_name<To>(), n, skip);
  }
}

template <class T>
void sums(::cudaStream_t s) {
  for (const std::size_t n : lengths)
    for (const std::size_t terms : {1u, 2u, 5u, 64u})
      for (const std::size_t skip : {0u, 1u, 99u}) {  // 99: each at another address
        if (terms * n > 13000000 || !covered(n, skip)) continue;
        std::vector<std::vector<T>> values;
        std::vector<array<T>*> arrays;
        std::vector<cuda::device_span<const T>> from;
        std::vector<detail::computed_in<T>> sum(n);
        for (std::size_t r = 0; r < terms; ++r) {
          const auto v = random<T>(n, n + r);
          for (std::size_t i = 0; i < n; ++i)
            sum[i] =
                r == 0 ? static_cast<detail::computed_in<T>>(v[i]) : sum[i] + static_cast<detail::computed_in<T>>(v[i]);
          arrays.push_back(new array<T>{v, skip == 99 ? r % 3 : skip});
          from.push_back(arrays.back()->view());
        }
        std::vector<T> wanted;
        for (const auto x : sum) wanted.push_back(T(x));
        const array<T> to{n, skip % 98};
        cuda::sum_buffers<T>(from, to.span(), s);
        expect(same(to.get(), wanted), "sum_buffers", type_name<T>(), n, skip);
        cuda::sum_buffers<T>(from, arrays.back()->span(), s);
        expect(same(arrays.back()->get(), wanted), "sum_buffers in place", type_name<T>(), n, skip);
        for (array<T>* a : arrays) delete a;
      }
}

template <class T>
void compression(::cudaStream_t s) {
  std::vector<T> patterns;
  for (std::uint32_t b = 0; b < 1u << (8 * sizeof(T)); ++b)
    patterns.push_back(T::from_bits(static_cast<decltype(T::bits)>(b)));
  std::vector<float> wide;
  for (const T x : patterns) wide.push_back(x);
  const array<T> all{patterns, 0};
  const array<float> widened{patterns.size(), 0};
  cuda::decompress<T>(all.view(), widened.span(), s);
  expect(same(widened.get(), wide), "decompress", type_name<T>(), patterns.size(), 0);

  for (const std::size_t n : lengths)
    for (const std::size_t skip : {0u, 1u, 3u}) {
      if (!covered(n, skip)) continue;
      const auto values = random<float>(n, n, true);
      const array<float> from{values, skip};
      const array<T> to{n, skip};
      cuda::compress<T>(from.view(), to.span(), s);
      std::vector<T> wanted;
      for (const float x : values) wanted.push_back(T(x));
      expect(same(to.get(), wanted), "compress", type_name<T>(), n, skip);

      const float factor = 32;
      const auto ordinary = random<float>(n, n + 1);
      auto rest = random<float>(n, n + 2);
      const array<float> gradients{ordinary, skip}, left{rest, skip == 3 ? 0 : skip};
      cuda::compress<T>(gradients.view(), to.span(), s, left.span(), factor);
      on_host::sweep_all(
          detail::compressed_elements<T>{ordinary.data(), rest.data(), wanted.data(), factor, 1 / factor}, n);
      expect(same(to.get(), wanted), "compress with feedback", type_name<T>(), n, skip);
      expect(same(left.get(), rest), "what compress left", type_name<T>(), n, skip);
    }
}

void packing(::cudaStream_t s) {
  on_host::numbers random{7};
  std::vector<std::byte> tensors(9000000), packed(9000000, std::byte{0xab});
  for (std::byte& b : tensors) b = static_cast<std::byte>(random.bits());
  const array<unsigned char> memory{9000000, 0}, target{9000000, 0}, back{9000000, 0};
  must(::cudaMemcpy(memory.data(), tensors.data(), tensors.size(), ::cudaMemcpyHostToDevice));
  must(::cudaDeviceSynchronize());
  std::vector<cuda::tensor_slot> slots, returned;
  std::size_t at = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t bytes = i % 11 == 0 ? 0 : i % 50 == 7 ? 400000 + i : random.bits() % 40000;
    const std::size_t begin = i % 3 == 0 ? (at + 15) / 16 * 16 : at + i % 5, slot = i % 4 == 0 ? begin : begin + i % 3;
    if (slot + bytes + 64 > packed.size()) break;
    slots.push_back({memory.data() + begin, bytes, slot});
    returned.push_back({back.data() + begin, bytes, slot});
    std::copy_n(tensors.data() + begin, bytes, packed.data() + slot);
    at = std::max(begin, slot) + bytes + 3;
  }
  const cuda::device_span<std::byte> to{reinterpret_cast<std::byte*>(target.data()), packed.size()};
  cuda::pack(slots, to, s);
  const auto got = target.get();
  expect(std::memcmp(got.data(), packed.data(), packed.size()) == 0, "pack", "tensors", slots.size(), 0);
  cuda::unpack(returned, to, s);
  const auto again = back.get();
  bool good = true;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto begin = static_cast<unsigned char*>(slots[i].data) - memory.data();
    good = good && std::memcmp(again.data() + begin, tensors.data() + begin, slots[i].bytes) == 0;
  }
  expect(good && slots.size() > 250, "unpack", "tensors", slots.size(), 0);
}

template <class T>
void measures(::cudaStream_t s) {
  for (const double factor : {1.0, 1.0 / 3})
    for (const std::size_t skip : {0u, 1u})
      for (const bool infinite : {false, true}) {
        std::vector<std::vector<T>> values;
        std::vector<array<T>*> arrays;
        std::vector<cuda::device_span<T>> gradients;
        std::vector<std::span<T>> parts;
        double exact = 0;
        for (std::size_t i = 0; i < 200; ++i) {
          values.push_back(random<T>(i < 6 ? lengths[i] : i * 37 % 20000, i));
          if (infinite && i == 150) values[i][3] = T(std::numeric_limits<float>::infinity());
          for (const T x : values[i]) exact += static_cast<double>(x) * static_cast<double>(x) * factor * factor;
          arrays.push_back(new array<T>{values[i], skip});
          gradients.push_back(arrays[i]->span());
        }
        for (auto& v : values) parts.emplace_back(v);
        const array<cuda::gradient_measure> workspace{cuda::unscale_workspace<T>(gradients), 0}, to{1, 0};
        cuda::unscale<T>(gradients, factor, workspace.span(), to.data(), s);
        cuda::gradient_measure found{};
        must(::cudaStreamSynchronize(s));
        must(::cudaMemcpy(&found, to.data(), sizeof found, ::cudaMemcpyDeviceToHost));
        const auto wanted = on_host::unscale<T>(parts, factor);
        expect(found.not_finite == (infinite ? 1u : 0u) && (infinite || found.squares == wanted.squares), "unscale",
               type_name<T>(), 200, skip);
        expect(infinite || std::abs(found.squares / exact - 1) < (sizeof(T) == 2 ? 1e-3 : 1e-6), "norm", type_name<T>(),
               200, skip);
        for (std::size_t i = 0; i < 200; ++i) {
          expect(same(arrays[i]->get(), values[i]), "what unscale wrote", type_name<T>(), values[i].size(), skip);
          delete arrays[i];
        }
      }
}

template <class T>
void adamw(::cudaStream_t s) {
  const tutti::train::adamw rule{.rate = 3e-3, .weight_decay = 0.1};
  for (const std::size_t n : lengths)
    for (const std::size_t skip : {0u, 1u, 3u}) {
      if (!covered(n, skip)) continue;
      auto p = random<float>(n, n), memory = std::vector<float>(2 * n);
      const array<float> master{p, skip}, mean{std::vector<float>(n), skip}, square{std::vector<float>(n), skip};
      const array<T> narrow{n, skip == 3 ? 0 : skip};
      for (std::uint64_t step = 1; step <= 5; ++step) {
        auto g = random<float>(n, n + step);
        const array<float> gradient{g, skip};
        cuda::gradient_measure measured{16.0 * 16.0, step == 4 ? 1u : 0u};
        const array<cuda::gradient_measure> device{std::vector{measured}, 0};
        const cuda::gradient_gate gate{device.data(), 0.5, 2.0};
        cuda::adamw(rule, step,
                    cuda::adamw_shard<T>{master.span(), mean.span(), square.span(), gradient.view(), narrow.span()}, s,
                    step >= 3 ? gate : cuda::gradient_gate{});
        must(::cudaStreamSynchronize(s));
        if (step == 4) continue;
        const auto verdict =
            detail::judge(step >= 3 ? cuda::gradient_gate{&measured, 0.5, 2.0} : cuda::gradient_gate{});
        for (float& x : g) x *= static_cast<float>(verdict.factor);
        rule(std::span{p}, std::span<const float>{g}, std::array{std::span{memory}.first(n), std::span{memory}.last(n)},
             step);
      }
      memory.resize(n);
      std::vector<T> rounded;
      for (const float x : p) rounded.push_back(T(x));
      expect(same(master.get(), p) && same(mean.get(), memory), "adamw", type_name<T>(), n, skip);
      expect(same(narrow.get(), rounded), "adamw's parameters", type_name<T>(), n, skip);
    }
}

// The example of docs/kernels.md.
void one_step(std::span<const cuda::tensor_slot> tensors, cuda::device_span<float> bucket, std::uint64_t step,
              cuda::device_span<cuda::gradient_measure> workspace, cuda::gradient_measure* measured,
              const cuda::adamw_shard<bfloat16>& shard, ::cudaStream_t stream) {
  const double scale = 1024;

  cuda::pack(tensors, {reinterpret_cast<std::byte*>(bucket.data()), bucket.size_bytes()}, stream);
  // the bucket is reduced over the ranks here
  cuda::unscale(std::span<const cuda::device_span<float>>{&bucket, 1}, 1 / scale, workspace, measured, stream);
  const cuda::gradient_gate gate{.measured = measured, .max_norm = 1.0};
  cuda::adamw(tutti::train::adamw{.rate = 1e-3}, step, shard, stream, gate);
}

// A captured step does what an eager one does.
void graphs(::cudaStream_t s) {
  constexpr std::size_t n = 50000;
  std::vector<std::vector<float>> results;
  for (const bool captured : {false, true}) {
    const array<float> p{random<float>(n, 1), 0}, m{std::vector<float>(n), 0}, v{std::vector<float>(n), 0};
    const array<float> g{random<float>(n, 2), 0};
    const array<bfloat16> narrow{n, 0};
    const std::array buckets{g.span()};
    const array<cuda::gradient_measure> workspace{cuda::unscale_workspace<float>(buckets), 0}, measured{1, 0};
    const cuda::adamw_shard<bfloat16> shard{p.span(), m.span(), v.span(), g.view(), narrow.span()};
    const array<float> tensor{random<float>(1000, 3), 0};
    const cuda::tensor_slot slot{tensor.data(), 4000, 16000};
    const auto work = [&] { one_step({&slot, 1}, g.span(), 1, workspace.span(), measured.data(), shard, s); };
    if (captured) {
      ::cudaGraph_t graph = nullptr;
      ::cudaGraphExec_t ready = nullptr;
      must(::cudaStreamBeginCapture(s, ::cudaStreamCaptureModeThreadLocal));
      work();
      must(::cudaStreamEndCapture(s, &graph));
      must(::cudaGraphInstantiate(&ready, graph, 0));
      must(::cudaGraphLaunch(ready, s));
      must(::cudaStreamSynchronize(s));
      must(::cudaGraphExecDestroy(ready));
      must(::cudaGraphDestroy(graph));
    } else {
      work();
      must(::cudaStreamSynchronize(s));
    }
    results.push_back(p.get());
  }
  expect(same(results[0], results[1]), "a captured step", "float", n, 0);
}

template <class F>
void refused(F f, const char* words) {
  bool good = false;
  try {
    f();
  } catch (const tutti::usage_error& e) {
    good = std::strstr(e.what(), words) != nullptr;
  }
  expect(good, "the refusal of", words, 0, 0);
}

void refusals(::cudaStream_t s) {
  const array<float> a{8, 0};
  const cuda::device_span<const float> seven{a.data(), 7};
  expect(cuda::divider::divide(a.data(), 8, dtype::i32, 2, s).code == tutti::errc::unsupported, "a refusal", "int32", 8,
         0);
  refused([&] { cuda::sum_buffers<float>({}, a.span(), s); }, "0 buffers");
  refused([&] { cuda::sum_buffers<float>(std::span{&seven, 1}, a.span(), s); }, "has 7 elements, the sum 8");
  refused([&] { cuda::compress<bfloat16>(a.view(), {}, s); }, "8 floats and 0");
  refused([&] { cuda::decompress<bfloat16>({}, {}, s, 0); }, "a factor of 0");
  const cuda::tensor_slot outside{a.data(), 8, 4};
  refused([&] { cuda::pack(std::span{&outside, 1}, {reinterpret_cast<std::byte*>(a.data()), 11}, s); }, "ends after");
  const cuda::device_span<float> eight = a.span();
  refused([&] { cuda::unscale<float>(std::span{&eight, 1}, 1, {}, nullptr, s); }, "workspace of 0");
  refused([&] { cuda::adamw(tutti::train::adamw{}, 0, cuda::adamw_shard{}, s); }, "step 0");
}

template <class... T, class F>
void for_types(F f) {
  (f.template operator()<T>(), ...);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::strcmp(argv[1], "--quick") == 0) lengths.pop_back();
  int devices = 0;
  if (const ::cudaError_t e = ::cudaGetDeviceCount(&devices); e != ::cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU here (%s)\n", ::cudaGetErrorString(e));
    return 77;
  }
  ::cudaStream_t s = nullptr;
  must(::cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for_types<float, double, float16, bfloat16, float8_e4m3, float8_e5m2>([&]<class T>() { divides<T>(s); });
  for_types<float, double, float16, bfloat16, float8_e4m3, float8_e5m2>([&]<class From>() {
    for_types<float, double, float16, bfloat16, float8_e4m3, float8_e5m2>([&]<class To>() { casts<From, To>(s); });
  });
  for_types<float, double, float16, bfloat16>(
      [&]<class From>() { for_types<float8_e4m3, float8_e5m2>([&]<class To>() { remembers<From, To>(s); }); });
  remembers<double, bfloat16>(s);
  for_types<float, double, float16, bfloat16>([&]<class T>() {
    sums<T>(s);
    measures<T>(s);
  });
  for_types<float16, bfloat16, float8_e4m3, float8_e5m2>([&]<class T>() { compression<T>(s); });
  for_types<float16, bfloat16>([&]<class T>() { adamw<T>(s); });
  packing(s);
  graphs(s);
  refusals(s);
  must(::cudaDeviceSynchronize());
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
} catch (const std::exception& e) {
  std::printf("FAILED: %s\n", e.what());
  return 1;
}
