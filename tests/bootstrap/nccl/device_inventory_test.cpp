#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <support/words.hpp>
#include <tutti/bootstrap/nccl/device_inventory.hpp>

namespace {

using tutti::errc;
using tutti_test::contains;

/// Two ranks on one machine, which have all they need.
std::vector<tutti::device_claim> two() {
  std::vector<tutti::device_claim> all(2);
  for (auto& c : all) {
    tutti::detail::put_text(c.host, "b");
    c.nccl_version = 22809;
    c.machine = 7;
    c.shm_device = 1;
    c.shm_free = tutti::ample_shm;
    c.who.uuid[0] = static_cast<std::uint8_t>(1 + (&c - all.data()));
  }
  return all;
}
std::string why(const std::vector<tutti::device_claim>& all, errc wanted) {
  const auto [what, text] = tutti::why_no_device_world(all, tutti::device_sharing::refused);
  CHECK(what.code == wanted);
  return text;
}
TEST_CASE("device_inventory: a /dev/shm that is full is refused where ranks share it, with the remedy") {
  auto all = two();
  CHECK(why(all, errc::ok).empty());
  all[0].shm_free = all[1].shm_free = 64 << 10;
  const std::string words = why(all, errc::out_of_resources);
  CHECK(contains(words,
                 "rank 0 (host b, pid 0) has 64 KiB left in /dev/shm, too little for NCCL to connect it with rank 1"));
  CHECK(contains(words, "--shm-size"));
  CHECK(contains(words, "NCCL_SHM_DISABLE=1"));
  all[1].shm_device = 2;  // containers with a /dev/shm each: NCCL uses the network
  CHECK(why(all, errc::ok).empty());
  all[1].shm_device = 1;
  all[1].machine = 8;
  CHECK(why(all, errc::ok).empty());
  all[0].shm_free = all[1].shm_free = -1;  // told not to use it
  all[1].machine = 7;
  CHECK(why(all, errc::ok).empty());
}

TEST_CASE("device_inventory: little room in /dev/shm is told of when NCCL has failed") {
  auto all = two();
  CHECK(tutti::scarce_shm(all).empty());
  all[1].shm_free = std::int64_t{60} << 20;
  CHECK(why(all, errc::ok).empty());
  CHECK(contains(tutti::scarce_shm(all), "; /dev/shm on host b had 60 MiB left, which may be too little: start the"));
  all[0].shm_device = 2;
  CHECK(tutti::scarce_shm(all).empty());
}

TEST_CASE("device_inventory: one GPU is one GPU, also where it has another number on each rank") {
  auto all = two();
  all[1].who.uuid = all[0].who.uuid;
  all[1].device = 3;
  tutti::detail::put_text(all[0].who.pci, "0000:1b:00.0");
  tutti::detail::put_text(all[0].who.model, "a fake");
  CHECK(contains(why(all, errc::rendezvous), "the same GPU (a fake at 0000:1b:00.0, device 0 and 3 of theirs)"));
  all[0].who.uuid = all[1].who.uuid = {};
  CHECK(why(all, errc::ok).empty());  // without a UUID: another place
  all[1].who.pci = all[0].who.pci;
  CHECK(contains(why(all, errc::rendezvous), "tutti-run --devices"));
  all[1].machine = 8;
  CHECK(why(all, errc::ok).empty());
}

}  // namespace
