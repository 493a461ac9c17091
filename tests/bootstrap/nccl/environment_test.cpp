#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <tutti/bootstrap/nccl/environment.hpp>

namespace {

TEST_CASE("nccl_environment: NCCL_SOCKET_IFNAME as NCCL reads it") {
  const std::vector<std::string> there{"lo", "eth0", "ib0"};
  for (const char* fine : {"", "eth", "eth0", "=eth0", "ib,eth7", "=wlan0,lo", "^docker", "^lo,ib", "^=eth", "eth0:2",
                           "=ib0:1", ",", "^", "wlan,lo,"}) {
    CAPTURE(fine);
    CHECK(tutti::why_no_interface(fine, there).empty());
  }
  CHECK(tutti::why_no_interface("eth7", there) ==
        "NCCL_SOCKET_IFNAME=eth7 names no network interface that is up here; there are lo, eth0, ib0");
  for (const char* bad : {"=eth", "eth00", "=wlan0,ib", "^lo,eth,ib"}) {
    CAPTURE(bad);
    CHECK(tutti::why_no_interface(bad, there).starts_with("NCCL_SOCKET_IFNAME="));
  }
  CHECK(tutti::why_no_interface("^l,e,i", there).find("leaves no network interface here") != std::string::npos);
  CHECK(tutti::why_no_interface("eth7", {}).empty());  // nobody knows what is there
}

TEST_CASE("nccl_environment: of this machine") {
  const auto here = tutti::nccl_environment_of();
  CHECK(here.machine == tutti::nccl_environment_of().machine);
  CHECK(here.machine != 0);
  CHECK(here.shm_free >= 0);
  const auto names = tutti::os::interface_names();
  CHECK(std::ranges::count(names, "lo") == 1);
  const auto shm_free_with = [](const char* variable, const char* value) {
    ::setenv(variable, value, 1);
    const auto s = tutti::nccl_environment_of();
    ::unsetenv(variable);
    return s.shm_free;
  };
  CHECK(shm_free_with("NCCL_SHM_DISABLE", "1") == -1);
  CHECK(shm_free_with("NCCL_SHM_DISABLE", "0") >= 0);
  for (const char* own : {"0", "1", "a"}) CHECK(shm_free_with("NCCL_HOSTID", own) == -1);
  CHECK(!tutti::os::free_space_of("/nowhere/at/all"));
}

}  // namespace
