#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tutti/bootstrap/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using tutti::raw_reduction;

void add_bytes(const void* in, void* inout, std::size_t, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    auto& a = static_cast<unsigned char*>(inout)[i];
    a = static_cast<unsigned char>(a + static_cast<const unsigned char*>(in)[i]);
  }
}

template <class F>
std::string complaint(F f) {
  return ranks::words_of<tutti::usage_error>(f);
}

TEST_CASE("raw_reducing: wrong sizes and functions are refused before anything is sent") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(3), 1);
  std::vector<std::byte> six(6), seven(7), eighteen(18);
  CHECK(complaint([&] { world.all_reduce(seven, raw_reduction{&add_bytes, 2}).wait(); }) ==
        "all_reduce: 7 bytes are not whole elements of 2 bytes");
  CHECK(complaint([&] { world.all_reduce(six, raw_reduction{nullptr, 2}).wait(); }) ==
        "all_reduce: a raw_reduction needs a function and an element of 1 to 4096 bytes; this one is of 2");
  CHECK(complaint([&] { world.all_reduce(six, raw_reduction{&add_bytes, 0}).wait(); }) ==
        "all_reduce: a raw_reduction needs a function and an element of 1 to 4096 bytes; this one is of 0");
  CHECK(complaint([&] { world.all_reduce(six, raw_reduction{&add_bytes, 4097}).wait(); }) ==
        "all_reduce: a raw_reduction needs a function and an element of 1 to 4096 bytes; this one is of 4097");
  CHECK(complaint([&] { world.all_reduce(six, seven, raw_reduction{&add_bytes, 1}).wait(); }) ==
        "all_reduce: in is 6 elements but out is 7");
  CHECK(complaint([&] { world.reduce_scatter(eighteen, seven, raw_reduction{&add_bytes, 1}).wait(); }) ==
        "reduce_scatter: in is 18 elements but out x world size is 21");
  CHECK(complaint([&] {
          world.reduce_scatter(std::span{eighteen}, std::span{eighteen}.first(6), raw_reduction{&add_bytes, 2}).wait();
        }) == "reduce_scatter: in and out overlap in part; pass the same block for in place, or separate buffers");
  const std::vector<std::size_t> counts{2, 3, 1};
  CHECK(complaint([&] { world.reduce_scatter_v(eighteen, six, counts, raw_reduction{&add_bytes, 3}).wait(); }) ==
        "reduce_scatter_v: out is 2 elements but the count of this rank is 3");
}

TEST_CASE("raw_reducing: a world of one copies its bytes") {
  auto world = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::vector<std::byte> bytes(4, std::byte{7}), copy(4);
  world.all_reduce(bytes, copy, raw_reduction{&add_bytes, 2}).wait();
  CHECK(copy == bytes);
}

}  // namespace
