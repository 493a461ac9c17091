#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <support/docs_examples.hpp>
#include <support/kernels_on_host.hpp>
#include <tutti/cuda/kernels/adamw_elements.hpp>
#include <tutti/cuda/kernels/cast_elements.hpp>
#include <tutti/cuda/kernels/compressed_elements.hpp>
#include <tutti/cuda/kernels/copy_tile.hpp>
#include <tutti/cuda/kernels/divided_elements.hpp>
#include <tutti/cuda/kernels/summed_elements.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/update_rule.hpp>

// The code of the device's elements and the way it is shared among threads, without a device; tests/gpu has one.

namespace {

using tutti::bfloat16, tutti::float16, tutti::float8_e4m3, tutti::float8_e5m2;
using tutti::cuda::gradient_measure;
namespace detail = tutti::cuda::detail;
using detail::computed_in;

// A value of T, to be compared; all NaNs are one.
template <class T>
double value(T x) {
  const auto wide = static_cast<double>(x);
  return wide == wide ? wide : 1e300;
}

// `count` elements that begin `skip` elements after a multiple of 64 bytes, between guards.
template <class T>
class array {
 public:
  array(std::size_t count, std::size_t skip) : memory_(count + skip + 64, T(7.0f)), count_(count) {
    const auto to_line = (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64 / sizeof(T);
    data_ = memory_.data() + to_line % (64 / sizeof(T)) + skip;
    std::fill_n(data_, count_, T{});
  }
  ~array() {
    std::fill_n(data_, count_, T(7.0f));
    CHECK(std::all_of(memory_.begin(), memory_.end(), [](T x) { return x == T(7.0f); }));
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;
  T* data() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  std::span<T> span() { return {data_, count_}; }

 private:
  std::vector<T> memory_;
  std::size_t count_;
  T* data_;
};

struct visits {
  static constexpr std::size_t width = 4, unroll = 2;
  int* times;
  std::size_t skip;
  detail::partition p;

  detail::partition cut_all(std::size_t) const { return p; }
  template <std::size_t W>
  std::size_t load(std::size_t i) const {
    return W == 1 || (i + skip) % W == 0 ? i : 1u << 30;  // not aligned: outside
  }
  template <std::size_t W>
  void store(std::size_t i, std::size_t loaded) const {
    for (std::size_t j = 0; j < W && loaded == i; ++j) ++times[i + j];
  }
};

TEST_CASE("kernels: every element belongs to one thread, at any address") {
  int wrong = 0;
  for (const std::size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 31u, 32u, 33u, 1000u})
    for (std::size_t skip = 0; skip < 4; ++skip)
      for (const std::size_t threads : {1u, 2u, 7u, 64u}) {
        array<float> a{count, skip}, b{count, skip}, c{count, skip + 1};
        const auto p = detail::cut<4>(count, a.data(), b.data());
        if (count >= 4 + (4 - skip) % 4) wrong += p.head != (4 - skip) % 4 || p.vectors != (count - p.head) / 4;
        wrong += detail::cut<4>(count, a.data(), c.data()).vectors != 0;
        for (const detail::partition q : {p, detail::cut<4>(count, a.data(), c.data())}) {
          std::vector<int> times(count + 1);
          on_host::sweep_all(visits{times.data(), skip, q}, count, threads);
          for (std::size_t i = 0; i < count; ++i) wrong += times[i] != 1;
          wrong += times[count] != 0;
        }
      }
  CHECK(wrong == 0);
}

TEST_CASE("kernels: a tile finds its array, in as many tables as it takes") {
  using table = detail::tile_table<int>;
  static_assert(sizeof(table) <= 4096 - 32);
  static_assert(sizeof(detail::slot_table) <= 4096 - 32 && detail::slot_table::capacity == 126);
  static_assert(detail::measured_table<float>::capacity == 168);
  const std::size_t arrays = 2 * table::capacity + 20;
  const auto tiles = [](std::size_t i) { return (i * 7) % 5; };  // a fifth have none
  std::vector<std::uint64_t> seen(arrays);
  int launches = 0, wrong = 0;
  const int ended = detail::in_tables<table>(
      arrays, 0, [](std::size_t i) { return static_cast<int>(i); }, tiles,
      [&](const table& t) {
        ++launches;
        for (std::uint64_t k = 0; k < t.tiles(); ++k) {
          const auto place = t.find(k);
          wrong += seen[static_cast<std::size_t>(t.entries[place.entry])]++ != place.tile;
        }
        return 0;
      });
  for (std::size_t i = 0; i < arrays; ++i) wrong += seen[i] != tiles(i);
  CHECK(ended == 0);
  CHECK(launches == 2);
  CHECK(wrong == 0);
  launches = 0;
  const auto fails = [&](const table&) { return ++launches; };
  CHECK(detail::in_tables<table>(arrays, 0, [](std::size_t) { return 0; }, tiles, fails) == 1);
  CHECK(launches == 1);
}

TEST_CASE("kernels: tensors of any length at any address are packed and unpacked") {
  on_host::numbers random{1};
  for (std::size_t apart = 0; apart < 8; ++apart) {
    std::vector<std::vector<unsigned char>> tensors;
    detail::slot_table table;
    std::size_t end = 0;
    for (const std::size_t bytes : {1u, 16u, 17u, 1000u, 40u, 32768u, 32768u + 3, 2u}) {
      auto& t = tensors.emplace_back(bytes + 16);
      for (auto& x : t) x = static_cast<unsigned char>(random.bits());
      const std::size_t shift = tensors.size() % 5, slot = (end + 15) / 16 * 16 + apart + shift;
      table.add({t.data() + shift, bytes, slot}, detail::tiles_of({nullptr, bytes, 0}));
      end = slot + bytes;
    }
    std::vector<std::byte> packed(end, std::byte{0xee}), expected = packed;
    const auto copy = [&]<detail::packing way>() {
      for (std::uint64_t tile = 0; tile < table.tiles(); ++tile)
        for (std::size_t me = 0; me < 32; ++me) detail::copy_tile<way>(table, packed.data(), tile, me, 32);
    };
    copy.operator()<detail::packing::pack>();
    for (std::size_t i = 0; i < table.size; ++i)
      std::memcpy(expected.data() + table.entries[i].offset, table.entries[i].data, table.entries[i].bytes);
    CHECK(packed == expected);
    const auto before = tensors;
    for (std::size_t i = 0; i < table.size; ++i) std::memset(table.entries[i].data, 0xdd, table.entries[i].bytes);
    CHECK(tensors != before);
    copy.operator()<detail::packing::unpack>();
    CHECK(tensors == before);
  }
}

TEST_CASE_TEMPLATE("kernels: a quotient is rounded once", T, float, double, float16, bfloat16, float8_e4m3,
                   float8_e5m2) {
  on_host::numbers random{2};
  int wrong = 0;
  for (const double divisor : {3.0, 8.0, 0.7, 1e4})
    for (const std::size_t skip : {0u, 1u, 3u}) {
      array<T> a{100, skip};
      std::vector<T> before;
      for (std::size_t i = 0; i < 100; ++i)
        before.push_back(a[i] = T(i % 3 ? random.ordinary() : i % 2 ? random.any() : 1e3f));
      using C = computed_in<T>;
      on_host::sweep_all(detail::divided_elements<T>{a.data(), static_cast<C>(divisor)}, 100, 3);
      for (std::size_t i = 0; i < 100; ++i) {
        const double exact = static_cast<double>(before[i]) / static_cast<double>(static_cast<C>(divisor));
        wrong += value(a[i]) != value(T(static_cast<C>(exact)));
      }
    }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("kernels: casts are rounded once, also in place", T, float, double, float16, bfloat16, float8_e4m3,
                   float8_e5m2) {
  on_host::numbers random{8};
  int wrong = 0;
  const auto try_to = [&]<class To>() {
    for (const std::size_t skip : {0u, 1u}) {
      array<T> from{50, skip};
      array<To> to{50, 1};
      for (T& x : from.span()) x = T(random.any());
      using elements = detail::cast_elements<T, To>;
      using number = typename elements::number;
      for (const double factor : {1.0, 1.0 / 3}) {
        on_host::sweep_all(elements{from.data(), to.data(), static_cast<number>(factor)}, 50, 3);
        for (std::size_t i = 0; i < 50; ++i) {
          const number x = static_cast<number>(static_cast<computed_in<T>>(from[i])) * static_cast<number>(factor);
          wrong += value(to[i]) != value(To(static_cast<computed_in<To>>(x)));
        }
      }
      if constexpr (std::same_as<T, To>) {
        on_host::sweep_all(elements{from.data(), from.data(), static_cast<number>(1.0 / 3)}, 50, 3);
        for (std::size_t i = 0; i < 50; ++i) wrong += value(from[i]) != value(to[i]);
      }
    }
  };
  try_to.template operator()<float>();
  try_to.template operator()<double>();
  try_to.template operator()<float16>();
  try_to.template operator()<bfloat16>();
  try_to.template operator()<float8_e4m3>();
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("kernels: buffers are added in order and rounded once", T, float, double, bfloat16, float16) {
  on_host::numbers random{3};
  int wrong = 0;
  double worst = 0;
  for (const std::size_t skip : {0u, 1u}) {
    array<T> to{77, skip};
    detail::summed_elements<T> f{to.data(), 0, {}};
    array<T> first{77, skip}, second{77, skip}, third{77, 2 * skip};  // the third is apart where the rest is not
    for (array<T>* t : {&first, &second, &third, &to}) {
      for (T& x : t->span()) x = T(random.ordinary());
      f.from[f.terms++] = t->data();
    }
    std::vector<double> exact(77);
    std::vector<computed_in<T>> ordered(77);
    for (std::size_t i = 0; i < 77; ++i)
      for (std::size_t r = 0; r < f.terms; ++r) {
        exact[i] += static_cast<double>(f.from[r][i]);
        ordered[i] += static_cast<computed_in<T>>(f.from[r][i]);
      }
    on_host::sweep_all(f, 77, 5);
    for (std::size_t i = 0; i < 77; ++i) {
      wrong += value(to[i]) != value(T(ordered[i]));
      worst = std::max(worst, std::abs(static_cast<double>(to[i]) - exact[i]));
    }
  }
  CHECK(wrong == 0);
  CHECK(worst <= (sizeof(T) == 2 ? 0x1p-7 : 0x1p-22));
}

TEST_CASE_TEMPLATE("kernels: what narrowing a float of another width leaves out is kept in float", T, double, float16,
                   bfloat16) {
  using wire = tutti::float8_e5m2;
  on_host::numbers random{5};
  constexpr std::size_t n = 77;
  int wrong = 0;
  for (const std::size_t skip : {0u, 1u, 3u}) {
    array<T> from{n, skip};
    array<float> left{n, 2 * skip};  // apart from the others, where they do not begin a vector
    array<wire> to{n, skip};
    std::vector<float> rest(n);
    for (int round = 0; round < 3; ++round) {
      for (T& x : from.span()) x = T(random.ordinary());
      on_host::sweep_all(detail::compressed_elements<wire, T>{from.data(), left.data(), to.data(), 4, 0.25f}, n, 5);
      for (std::size_t i = 0; i < n; ++i) {
        const float whole = static_cast<float>(from[i]) + rest[i];
        const wire sent(whole * 4);
        rest[i] = whole - static_cast<float>(sent) / 4;
        wrong += sent.bits != to[i].bits || rest[i] != left[i];
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("kernels: what narrowing leaves out is sent later", T, bfloat16, float16, float8_e4m3, float8_e5m2) {
  on_host::numbers random{4};
  constexpr std::size_t n = 201;
  constexpr int rounds = 20;
  array<float> from{n, 1}, left{n, 1}, back{n, 0};
  array<T> to{n, 1};
  for (float& x : from.span()) x = random.any();
  on_host::sweep_all(detail::compressed_elements<T>{from.data(), nullptr, to.data(), 1, 1}, n);
  on_host::sweep_all(detail::cast_elements<T, float>{to.data(), back.data(), 0.5f}, n);
  int wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    wrong += value(to[i]) != value(T(from[i]));
    wrong += value(back[i]) != value(static_cast<float>(T(from[i])) * 0.5f);
  }
  CHECK(wrong == 0);

  const float factor = 64;
  std::vector<double> sent(n);
  for (float& x : from.span()) x = random.ordinary();
  for (int round = 0; round < rounds; ++round) {
    on_host::sweep_all(detail::compressed_elements<T>{from.data(), left.data(), to.data(), factor, 1 / factor}, n);
    for (std::size_t i = 0; i < n; ++i) sent[i] += static_cast<double>(to[i]) / factor;
  }
  double worst = 0;  // all that was to be sent, less what has been
  for (std::size_t i = 0; i < n; ++i)
    worst = std::max(worst, std::abs(rounds * static_cast<double>(from[i]) - sent[i] - static_cast<double>(left[i])));
  CHECK(worst < 1e-5);
  from[0] = std::numeric_limits<float>::infinity();
  on_host::sweep_all(detail::compressed_elements<T>{from.data(), left.data(), to.data(), factor, 1 / factor}, n);
  CHECK(!std::isfinite(static_cast<float>(to[0])));
  CHECK(left[0] == 0);
}

TEST_CASE_TEMPLATE("kernels: a measure is that of the host, whatever the address", T, float, double, float16,
                   bfloat16) {
  on_host::numbers random{5};
  const std::size_t n = detail::measured_elements + 1001;
  std::array<gradient_measure, 2> found;
  for (const std::size_t skip : {0u, 1u}) {
    random = on_host::numbers{5};
    array<T> a{n, skip}, b{3, 0};
    for (T& x : a.span()) x = T(random.ordinary());
    b[1] = T(2.0f);
    const std::array parts{a.span(), std::span<T>{}, b.span()};
    const auto looked = on_host::unscale<T>(parts, 1);
    tutti::train::gradient_measure exact;
    for (const auto& p : parts) exact = exact + tutti::train::measure(std::span<const T>{p});
    CHECK(looked.squares == doctest::Approx(exact.squares).epsilon(1e-12));
    CHECK(looked.not_finite == 0);
    CHECK(b[1] == T(2.0f));
    const T last = a[n - 1];
    found[skip] = on_host::unscale<T>(parts, 0.3);
    CHECK(found[skip].squares == doctest::Approx(exact.squares * 0.09).epsilon(sizeof(T) == 2 ? 1e-3 : 1e-6));
    CHECK(a[n - 1] == T(static_cast<computed_in<T>>(last) * static_cast<computed_in<T>>(0.3)));
    a[7] = T(std::numeric_limits<float>::infinity());
    b[2] = T(std::numeric_limits<float>::quiet_NaN());
    CHECK(on_host::unscale<T>(parts, 1).not_finite == 2);
  }
  CHECK(found[0].squares == found[1].squares);
}

TEST_CASE("kernels: the device judges gradients as the loss scaler does") {
  const tutti::train::loss_scaler scaler{{.initial = 1024}};
  for (const float x : {3.0f, 3e6f, std::numeric_limits<float>::infinity()})
    for (const double most : {0.5, 1e9, std::numeric_limits<double>::infinity()}) {
      std::array<float, 3> g{x, 1, -x};
      const std::array parts{std::span<float>{g}};
      const auto wanted = scaler.inspect(std::span<const float>{g}, most);
      const gradient_measure m = on_host::unscale<float>(parts, 1);
      const auto verdict = detail::judge({&m, 1.0 / 1024, most});
      CHECK(verdict.skip == wanted.overflow);
      if (!verdict.skip) CHECK(verdict.factor == wanted.factor);
    }
  CHECK(detail::judge({}).factor == 1);
  // What the pass itself makes infinite is found by the sum.
  for (const double most : {1.0, std::numeric_limits<double>::infinity()}) {
    std::array<float, 2> g{3e38f, 1};
    const std::array parts{std::span<float>{g}};
    const gradient_measure m = on_host::unscale<float>(parts, 2);
    CHECK(m.not_finite == 0);
    CHECK(!std::isfinite(g[0]));
    CHECK(detail::judge({&m, 1, most}).skip);
  }
}

TEST_CASE("kernels: AdamW has the bits of train::adamw") {
  on_host::numbers random{6};
  constexpr std::size_t n = 103;
  const tutti::train::adamw rule{.rate = 3e-3, .weight_decay = 0.1};
  for (const std::size_t skip : {0u, 2u}) {
    array<float> p{n, skip}, m{n, skip}, v{n, skip}, g{n, 2};  // vectors, or none
    array<bfloat16> narrow{n, skip};
    std::vector<float> wanted(n), memory(2 * n), scaled(n);
    for (std::size_t i = 0; i < n; ++i) p[i] = wanted[i] = random.ordinary();
    int wrong = 0;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const float factor = step == 3 ? 0.37f : 1;
      for (std::size_t i = 0; i < n; ++i) scaled[i] = (g[i] = random.ordinary()) * factor;
      on_host::sweep_all(
          detail::adamw_elements<bfloat16>{p.data(), m.data(), v.data(), g.data(), step == 1 ? nullptr : narrow.data(),
                                           detail::factors_of(rule, step), factor},
          n);
      rule(std::span{wanted}, std::span<const float>{scaled},
           std::array{std::span{memory}.first(n), std::span{memory}.last(n)}, step);
      for (std::size_t i = 0; i < n; ++i) {
        wrong += p[i] != wanted[i] || m[i] != memory[i] || v[i] != memory[n + i];
        wrong += narrow[i].bits != (step == 1 ? 0 : bfloat16(wanted[i]).bits);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("kernels: the example of the docs is compiled where there is a CUDA compiler") {
  const std::string there = docs_examples::bare(docs_examples::text_of(TUTTI_SOURCE_DIR "/tests/gpu/kernels_test.cu"));
  const auto blocks = docs_examples::of(TUTTI_SOURCE_DIR "/docs/kernels.md");
  CHECK(blocks.size() == 1);
  for (const std::string& block : blocks)
    CHECK_MESSAGE(there.find(docs_examples::bare(block)) != std::string::npos, block);
}

}  // namespace
