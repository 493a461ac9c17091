#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <support/gpus.hpp>
#include <support/words.hpp>
#include <tutti/backend/nccl/dlopen.hpp>
#include <tutti/cuda/pinned_memory.hpp>

// The library is a shared object of the tests, where the build makes one: support/libraries/fake_gpu.cpp.

namespace {

using tutti::errc;
using tutti::nccl_feature;
using tutti::os::dynamic_library;
using tutti_test::contains;

struct the_fake {
  static dynamic_library load() { return dynamic_library{TUTTI_FAKE_GPU}; }
};
struct nowhere {
  static dynamic_library load() { return dynamic_library{"libtutti_has_no_such.so.2", "libnor_this.so"}; }
};
struct of_something_else {
  static dynamic_library load() { return dynamic_library{"libc.so.6"}; }
};
using loaded_cuda = tutti::cuda::basic_runtime_dlopen<the_fake>;
using loaded = tutti::basic_nccl_dlopen<the_fake, loaded_cuda>;

/// What a world of one rank says that cannot be made.
template <class Api>
std::string refusal() {
  std::string words;
  tutti::run_threads(1, [&](tutti::communicator<tutti::threads>& world) {
    errc kind{};
    words = words_of([&] { (void)tutti::make_nccl<Api>(world); }, kind);
    CHECK(kind == errc::device);
  });
  return words;
}
TEST_CASE("nccl_dlopen: a communicator over libraries that were loaded") {
  CHECK(loaded::missing().empty());
  CHECK(loaded::cuda::missing().empty());
  CHECK(loaded::has(nccl_feature::revoke));
  CHECK(!loaded::has(nccl_feature::shrink));  // there is no such function in that library
  CHECK(!loaded::has(nccl_feature::exchange));
  tutti::cuda::device_identity who;
  CHECK(loaded::cuda::identify(0, who) == tutti::cuda::result::success);
  CHECK(std::string(who.model.data()) == "a loaded fake");
  CHECK(std::string(who.pci.data()) == "0000:07:00.0");
  CHECK(who.uuid[0] == 7);
  tutti::run_threads(1, [](tutti::communicator<tutti::threads>& world) {
    auto g = tutti::make_nccl<loaded>(world);
    std::vector<float> in{1, 2, 3}, out(3);
    g.all_reduce(on_device(in), on_device(out), tutti::premul_sum(2)).wait();
    CHECK(out == in);
    std::vector<double> all(2), mine{4, 5};
    g.all_gather(on_device(mine), on_device(all)).wait();
    CHECK(all == mine);
    g.gather(on_device(in), on_device(out), 0).join({});
    g.barrier().wait();
  });
  const tutti::cuda::basic_pinned_memory<float, loaded_cuda> pinned{0, 10};
  CHECK(pinned.span().size() == 10);
  int (*communicators)() = nullptr;
  REQUIRE(the_fake::load().find(communicators, "fake_gpu_communicators"));
  CHECK(communicators() == 0);
}

TEST_CASE("nccl_dlopen: a library that is missing, or is another, is named with what to do") {
  using no_cuda = tutti::basic_nccl_dlopen<the_fake, tutti::cuda::basic_runtime_dlopen<nowhere>>;
  std::string words = refusal<no_cuda>();
  CHECK(words.find("rank 0 (host ") == 0);
  CHECK(contains(words, "CUDA's runtime, libcudart.so, cannot be loaded (libtutti_has_no_such.so.2: "));
  CHECK(contains(words, "LD_LIBRARY_PATH"));
  words = refusal<tutti::basic_nccl_dlopen<nowhere, loaded_cuda>>();
  CHECK(contains(words, "NCCL, libnccl.so.2, cannot be loaded (libtutti_has_no_such.so.2: "));
  CHECK(contains(words, "libnccl2"));
  words = refusal<tutti::basic_nccl_dlopen<of_something_else, loaded_cuda>>();
  CHECK(contains(words, "the library that was loaded for NCCL has no ncclGetVersion; libnccl.so.2 of 2.18 or newer"));
  CHECK(std::string(no_cuda::cuda::words({})) == "CUDA's runtime could not be loaded");
}

}  // namespace
