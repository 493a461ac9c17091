#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/shm/inline_path.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>
#include <algo/shm/inline_path.hpp>
#include <support/grid.hpp>

namespace {

using links::append;
using links::call;
using links::expect;
using links::word;
using tutti::algo::progress;

template <class T>
tutti::all_reduce_args sum_of(std::span<const T> in, std::span<T> out) {
  return {tutti::erase_type(in), tutti::erase_type(out), tutti::erase_type<T>(tutti::sum)};
}

constexpr std::size_t most = std::size_t{128} << 8;  // floats of a chunk

TEST_CASE("inline_path: all_reduces of one chunk, whichever ranks come at once and whoever maps its buffers") {
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {2, 3}))
    links::run<links::staging_transport>(size, [](auto& me) {
      const auto number = static_cast<std::size_t>(me.number());
      auto* const mapped = reinterpret_cast<float*>(me.link().allocate((most + 1) * sizeof(float)));
      std::vector<float> own(most + 1);
      for (std::size_t round = 0; round < 96; ++round)
        for (const std::size_t count : {std::size_t{1023}, std::size_t{1024}, std::size_t{2049}, most, most + 1}) {
          const bool maps = round % 4 == 3 || (round % 4 == 1 && number == round % 3);
          const std::span<float> v{maps ? mapped : own.data(), count};
          for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<float>(i % 1000 + number + round);
          call(me, sum_of<float>(v, v), static_cast<int>((round + number) % 3) * 100 - 100);
          const auto n = static_cast<std::size_t>(me.size());
          for (const std::size_t i : {std::size_t{0}, count / 2, count - 1})
            expect(v[i] == static_cast<float>(n * (i % 1000 + round) + n * (n - 1) / 2),
                   "element " + std::to_string(i) + " of " + std::to_string(count) + " in round", round);
        }
    });
}

TEST_CASE("inline_path: all ranks choose how to stage after the same call, whoever came to it at once") {
  links::run<links::staging_transport>(2, [](auto& me) {
    std::vector<float> in(most, 2), out(most);
    for (int round = 0; round < 1200; ++round) {  // 150 MiB: three choices
      call(me, sum_of<float>(in, out), (round / 8 + me.number()) % 2 * 200 - 1);
      expect(out.front() == 4 && out.back() == 4, "a sum");
    }
  });
}

TEST_CASE("inline_path: an all_reduce of one chunk ends without a routine where the others have posted") {
  std::atomic<int> inline_path{0}, routines{0};
  links::run<links::staging_transport>(2, [&](auto& me) {
    std::vector<std::uint32_t> in(2048, 3), out(2048);
    for (int i = 0; i < 300; ++i) {
      ++(call(me, sum_of<std::uint32_t>(in, out), 1 << 22) == progress::all ? inline_path : routines);
      expect(out.front() == 6 && out.back() == 6, "a sum");
    }
  });
  CHECK(inline_path > 0);
  CHECK(routines > 0);  // who opens the shm group, at least
}

TEST_CASE("inline_path: what is mapped on this rank, or is no single chunk, does not begin") {
  links::run<links::staging_transport>(2, [](auto& me) {
    const auto may_begin = [&](std::span<float> v) {
      return tutti::algo::may_begin(me.link(), me.shm_group(), sum_of<float>(v, v), me.number(), me.size());
    };
    std::vector<float> own(40000);
    auto* const mapped = reinterpret_cast<float*>(me.link().allocate(16384));
    expect(!may_begin(std::span{own}.first(16384)), "the choice of how to stage is due");
    expect(may_begin(std::span{own}.first(2048)), "8 KiB");
    expect(!may_begin(std::span{own}), "two chunks");
    expect(!may_begin({mapped, 2048}), "mapped");
    expect(may_begin({mapped, 1000}), "too small to be mapped");
    expect(may_begin({mapped, 8192}), "more than what is mapped");
  });
}

TEST_CASE("inline_path: operands are taken in the order of the ranks, and what a user's reduction throws is told") {
  links::run<links::staging_transport>(3, [](auto& me) {
    for (int round = 0; round < 20; ++round) {
      std::vector<word> v(300, links::letter(me.number()));
      const tutti::all_reduce_args a{links::in(v), links::out(v), tutti::erase_type<word>(append{})};
      const progress so_far = call(me, a, 1 << 20);
      expect(so_far != progress::all, "a user's function was called where it may not throw");
      expect(v == std::vector<word>(300, links::spelled(0, me.size())), "another order in round", round);
    }
  });
}

TEST_CASE("inline_path: ranks that call all_reduces of different lengths are told so, at once or not") {
  for (const int spin_limit : {-1, 0, 1 << 20}) {
    std::atomic<int> mismatches{0};
    links::run<links::staging_transport>(2, [&](auto& me) {
      std::vector<std::uint32_t> in(2048), out(2048);
      call(me, sum_of<std::uint32_t>(in, out), -1);  // opens the shm group
      in.resize(3000 + static_cast<std::size_t>(me.number()));
      out.resize(in.size());
      try {
        call(me, sum_of<std::uint32_t>(in, out), spin_limit);
      } catch (const tutti::error& e) {
        mismatches += e.kind() == tutti::errc::mismatch;
      }
    });
    CHECK(mismatches == 2);
  }
}

}  // namespace
