#include <doctest/doctest.h>

#include <barrier>
#include <cstddef>
#include <vector>

#include <tutti/algo/shm/group/direct_copy.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;
using tutti::algo::detail::beyond_caches, tutti::algo::detail::copy_mapped;

std::vector<std::byte> counted(std::size_t bytes) {
  std::vector<std::byte> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i) v[i] = static_cast<std::byte>(i * 7 + i / 251);
  return v;
}

}  // namespace

TEST_CASE("direct_copy: a block of a message of any size is copied, and nothing beside it") {
  links::run(2, [](auto& me) {
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    for (const std::size_t message : {std::size_t{1}, beyond_caches - 1, beyond_caches})
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, shm_group::access_bytes - 1,
                                      shm_group::access_bytes, 3 * shm_group::access_bytes + 77}) {
        const auto from = counted(bytes + 1);
        std::vector<std::byte> to(bytes + 2, std::byte{0xc5}), wanted = to;
        for (std::size_t i = 0; i < bytes; ++i) wanted[i + 1] = from[i + 1];
        expect(copy_mapped(me.shm_group(), to.data() + 1, from.data() + 1, bytes, message), "given up");
        expect(to == wanted, "another's bytes");
      }
  });
}

TEST_CASE("direct_copy: when a rank takes its buffers back, nothing more is copied") {
  std::barrier together{2};
  links::run(2, [&](auto& me) {
    me.run([&](auto l) { return tutti::algo::direct_barrier(l, me.shm_group()); });
    together.arrive_and_wait();
    if (me.number() == 1) const shm_group::exposure_epoch taken_back{me.shm_group(), me.link()};
    together.arrive_and_wait();
    const auto from = counted(shm_group::access_bytes + 1);
    std::vector<std::byte> to(from.size());
    expect(!copy_mapped(me.shm_group(), to.data(), from.data(), from.size(), from.size()), "copied all the same");
    expect(to == std::vector<std::byte>(from.size()), "began");
    together.arrive_and_wait();
  });
}

TEST_CASE(
    "direct_copy: of what the caches do not hold, near ranks take a chunk of each block in turn, far ones blocks") {
  using tutti::algo::detail::copy_chunk, tutti::algo::detail::turn_bytes;
  constexpr std::size_t block = beyond_caches / 2;
  shm_group near_ranks, far_ranks;
  far_ranks.use({shm_group::slot_bytes, tutti::stores::streaming});
  CHECK(turn_bytes(near_ranks, block, beyond_caches) == copy_chunk);
  CHECK(turn_bytes(near_ranks, block, beyond_caches - 1) == block);
  CHECK(turn_bytes(far_ranks, block, beyond_caches) == block);
  CHECK(turn_bytes(near_ranks, 0, 0) == 1);  // a loop over no bytes ends
}
