#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::complaint;
using tutti::raw_reduction;

void add_bytes(const void* in, void* inout, std::size_t, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    auto& a = static_cast<unsigned char*>(inout)[i];
    a = static_cast<unsigned char>(a + static_cast<const unsigned char*>(in)[i]);
  }
}

TEST_CASE("raw_reducing: wrong sizes and functions are refused before anything is sent") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<std::byte> six(6), seven(7), eighteen(18);
  CHECK(complaint([&] { world.all_reduce(seven, raw_reduction{&add_bytes, 2}).wait(); }) ==
        "all_reduce on rank 1: 7 bytes are not whole elements of 2 bytes");
  CHECK(complaint([&] { world.all_reduce(six, raw_reduction{nullptr, 2}).wait(); }) ==
        "all_reduce on rank 1: a raw_reduction needs a function and an element of 1 to 4096 bytes; this one has no "
        "function");
  CHECK(complaint([&] { world.all_reduce(six, raw_reduction{&add_bytes, 0}).wait(); }) ==
        "all_reduce on rank 1: a raw_reduction needs a function and an element of 1 to 4096 bytes; this one is of 0");
  CHECK(
      complaint([&] { world.all_reduce(six, raw_reduction{&add_bytes, 4097}).wait(); }) ==
      "all_reduce on rank 1: a raw_reduction needs a function and an element of 1 to 4096 bytes; this one is of 4097");
  CHECK(complaint([&] { world.all_reduce(seven, six, raw_reduction{&add_bytes, 1}).wait(); }) ==
        "all_reduce on rank 1: in is 7 elements but out is 6");
  CHECK(complaint([&] {
          world.reduce_scatter(eighteen, std::span{six}.first(5), raw_reduction{&add_bytes, 1}).wait();
        }) == "reduce_scatter on rank 1: a block of in is 6 elements but out is 5");
  CHECK(complaint([&] { world.reduce_scatter(eighteen, six, raw_reduction{&add_bytes, 9}).wait(); }) ==
        "reduce_scatter on rank 1: 2 elements cannot be cut into 3 equal blocks; reduce_scatter_v takes blocks of any "
        "lengths");
  CHECK(complaint([&] {
          world.reduce_scatter(std::span{eighteen}, std::span{eighteen}.first(6), raw_reduction{&add_bytes, 2}).wait();
        }) ==
        "reduce_scatter on rank 1: in and out overlap; for in place, out is elements 6 to 12 of in, this rank's block; "
        "else pass separate buffers");
  const std::vector<std::size_t> counts{2, 3, 1};
  CHECK(complaint([&] { world.reduce_scatter_v(eighteen, six, counts, raw_reduction{&add_bytes, 3}).wait(); }) ==
        "reduce_scatter_v on rank 1: the count of this rank is 9 elements but out is 6");
  const std::vector<std::span<std::byte>> pieces{six, seven};
  const std::string rest = " on rank 1: 7 bytes are not whole elements of 2 bytes";
  CHECK(complaint([&] { world.all_reduce_coalesced(pieces, raw_reduction{&add_bytes, 2}).wait(); }) ==
        "all_reduce_coalesced" + rest);
  CHECK(complaint([&] { world.reduce(seven, 0, raw_reduction{&add_bytes, 2}).wait(); }) == "reduce" + rest);
  CHECK(complaint([&] { world.scan(seven, raw_reduction{&add_bytes, 2}).wait(); }) == "scan" + rest);
  CHECK(complaint([&] { world.exclusive_scan(seven, eighteen, raw_reduction{&add_bytes, 2}).wait(); }) ==
        "exclusive_scan" + rest);
}

void add_words(const void* in, void* inout, std::size_t element, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += element)
    for (std::size_t i = 0; i < element / sizeof(std::uint32_t); ++i)
      static_cast<std::uint32_t*>(inout)[at / 4 + i] += static_cast<const std::uint32_t*>(in)[at / 4 + i];
}

TEST_CASE("raw_reducing: whatever reduces takes a function of bytes, and does what it does with a type") {
  tutti::run_threads(3, [](ranks::world& world) {
    const raw_reduction raw{&add_words, 12};
    for (const std::size_t count : {36u, 90000u}) {
      std::vector<std::uint32_t> in(count), typed(count), out(count);
      const std::vector<std::size_t> counts{count / 3 - 3, 6, count / 3 * 2 - 3},
          words{counts[0] / 3, 2, counts[2] / 3};
      const auto from = std::as_bytes(std::span{in});
      const auto to = std::as_writable_bytes(std::span{out});
      const auto same = [&](const char* call, auto of_type, auto of_bytes) {
        for (std::size_t i = 0; i < count; ++i) {
          in[i] = static_cast<std::uint32_t>(i * 3 + static_cast<std::size_t>(world.rank()));
          typed[i] = out[i] = 7;
        }
        of_type().wait();
        of_bytes().wait();
        ranks::expect(typed == out, call);
      };
      same("all_reduce", [&] { return world.all_reduce(in, typed); }, [&] { return world.all_reduce(from, to, raw); });
      same("scan", [&] { return world.scan(in, typed); }, [&] { return world.scan(from, to, raw); });
      same(
          "exclusive_scan", [&] { return world.exclusive_scan(in, typed); },
          [&] { return world.exclusive_scan(from, to, raw); });
      for (const int root : {0, 2})
        same(
            "reduce", [&] { return world.reduce(in, typed, root); }, [&] { return world.reduce(from, to, root, raw); });
      same(
          "reduce_scatter", [&] { return world.reduce_scatter(in, typed); },
          [&] { return world.reduce_scatter(from, to, raw); });
      same(
          "reduce_scatter_v", [&] { return world.reduce_scatter_v(in, typed, counts); },
          [&] { return world.reduce_scatter_v(from, to, words, raw); });
      const std::vector<std::span<std::uint32_t>> lists{std::span{typed}.first(3), std::span{typed}.subspan(3)};
      const std::vector<std::span<std::byte>> pieces{to.first(12), to.subspan(12)};
      same(
          "all_reduce_coalesced", [&] { return world.all_reduce_coalesced(lists); },
          [&] { return world.all_reduce_coalesced(pieces, raw); });
    }
  });
}

/// What a binding keeps for the function that its user gave it.
struct closure {
  std::atomic<int> calls{0};
  std::uint32_t factor = 1;
};
void add_for(void* user, const void* in, void* inout, std::size_t element, std::size_t bytes) {
  static_cast<closure*>(user)->calls += 1;
  for (std::size_t i = 0; i < bytes / element; ++i)
    static_cast<std::uint32_t*>(inout)[i] +=
        static_cast<closure*>(user)->factor * static_cast<const std::uint32_t*>(in)[i];
}

TEST_CASE("raw_reducing: a function may have a pointer of its user's") {
  closure of_ranks[2];
  tutti::run_threads(2, [&](ranks::world& world) {
    closure& mine = of_ranks[world.rank()];
    for (const std::size_t count : {3u, 50000u}) {
      std::vector<std::uint32_t> in(count, 5), out(count);
      world
          .all_reduce(std::as_bytes(std::span{in}), std::as_writable_bytes(std::span{out}),
                      raw_reduction{.element_bytes = 4, .fold_for = &add_for, .user = &mine})
          .wait();
      ranks::expect(out == std::vector<std::uint32_t>(count, 10), "a sum");
    }
    std::vector<std::byte> four(4);
    ranks::expect(complaint([&] {
                    world.all_reduce(four, raw_reduction{&add_bytes, 4, &add_for, &mine}).wait();
                  }).find("this one has two functions") != std::string::npos,
                  "two functions");
  });
  CHECK(of_ranks[0].calls + of_ranks[1].calls > 0);
}

TEST_CASE("raw_reducing: a world of one copies its bytes") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::vector<std::byte> bytes(4, std::byte{7}), copy(4);
  world.all_reduce(bytes, copy, raw_reduction{&add_bytes, 2}).wait();
  CHECK(copy == bytes);
}

}  // namespace
