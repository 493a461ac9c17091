#include <doctest/doctest.h>

#include <tutti/communicator/nvtx_ranges.hpp>

#if __has_include(<nvtx3/nvtx3.hpp>)
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator/with_hooks.hpp>
#include <tutti/core/error.hpp>

namespace {

/// A tool that listens: it notes the ranges that begin and end, in a process with one rank.
std::vector<std::string> ranges;
std::map<nvtxRangeId_t, std::string> open_ranges;

nvtxDomainHandle_t create_domain(const char* name) {
  ranges.push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&ranges);
}
nvtxRangeId_t start_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* what) {
  CHECK(domain == reinterpret_cast<nvtxDomainHandle_t>(&ranges));
  static nvtxRangeId_t id = 0;
  open_ranges[++id] = what->message.ascii;
  ranges.push_back("begin " + open_ranges[id] + " " + std::to_string(what->payload.ullValue));
  return id;
}
void end_range(nvtxDomainHandle_t, nvtxRangeId_t id) {
  ranges.push_back("end " + open_ranges.at(id));
  open_ranges.erase(id);
}

int listen(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  const auto set = [&](unsigned which, auto* f) {
    if (which < size) *table[which] = reinterpret_cast<NvtxFunctionPointer>(f);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  set(NVTX_CBID_CORE2_DomainRangeStartEx, &start_range);
  set(NVTX_CBID_CORE2_DomainRangeEnd, &end_range);
  return 1;
}

TEST_CASE("nvtx_ranges: a tool sees a range for each operation, also for one that fails") {
  InitializeInjectionNvtx2_fnptr = &listen;  // NVTX looks for it before it loads a tool
  tutti::run_threads(1, [](auto& plain) {
    auto world = tutti::with_hooks(std::move(plain), tutti::nvtx_ranges{});
    std::vector values{1, 2, 3};
    world.all_reduce(values).wait();
    world.abort();
    CHECK_THROWS_AS(world.barrier().wait(), tutti::error);
  });
  CHECK(ranges == std::vector<std::string>{"domain tutti", "begin all_reduce 3", "end all_reduce", "begin barrier 0",
                                           "end barrier"});
  CHECK(open_ranges.empty());
}

}  // namespace
#else
TEST_CASE("nvtx_ranges: a tool sees a range for each operation, also for one that fails") {
  MESSAGE("skipped: nvtx3/nvtx3.hpp is not installed");
}
#endif
