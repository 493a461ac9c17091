#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/shm/broadcast.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;

constexpr std::size_t beside = shm_group::payload_bytes, mapped_from = std::size_t{4} << 10,
                      chunk = tutti::algo::detail::copy_chunk;

/// Messages around each border, one behind the other from every root, into odd places of buffers that are written again
/// at once. `steps(bytes)` is what a broadcast may post.
template <tutti::transport T, class Steps>
void check_all(int size, Steps steps) {
  links::run<T>(size, [&](auto& me) {
    std::vector<std::uint8_t> memory(2 * chunk + 200);
    std::uint8_t salt = 0;
    // As if the staging had been chosen: that takes rounds, too.
    (void)me.shm_group().choice_due(tutti::algo::retune_schedule::worth_choosing);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, beside, beside + 1, mapped_from - 1, mapped_from,
                                    chunk, chunk + 1, 2 * chunk + 77})
      for (int root = 0; root < me.size(); ++root) {
        const std::span<std::uint8_t> data = std::span{memory}.subspan(1 + static_cast<std::size_t>(root), bytes);
        ++salt;
        std::vector<std::uint8_t> wanted(memory.size(), 0xee);
        for (std::size_t i = 0; i < bytes; ++i)
          wanted[1 + static_cast<std::size_t>(root) + i] = static_cast<std::uint8_t>(i * 7 + salt);
        std::fill(memory.begin(), memory.end(), std::uint8_t{0xee});
        if (me.number() == root) std::copy(wanted.begin(), wanted.end(), memory.begin());
        const std::uint64_t before = me.shm_group().step();
        me.run([&](auto link) {
          return tutti::algo::direct_broadcast(link, me.shm_group(),
                                               tutti::broadcast_args{tutti::erase_type(data), root});
        });
        expect(memory == wanted, "from rank " + std::to_string(root) + ", bytes:", bytes);
        expect(me.shm_group().step() - before == steps(bytes), "the rounds of a broadcast of bytes", bytes);
      }
  });
}

TEST_CASE("direct_broadcast: beside a step, in a slot, and in chunks, one round each") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5}, {3}))
    check_all<links::staging_transport>(size,
                                        [](std::size_t bytes) { return bytes == 0 ? 1 : (bytes + chunk - 1) / chunk; });
}

/// As if every rank had a core of its own: a root may wait.
class roomy_transport : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] double ranks_per_core() const noexcept { return 1; }
};

TEST_CASE("direct_broadcast: where ranks map each other's buffers, two rounds from 4 KiB on, and no staging") {
  for (const int size : tutti_test::grid<int>({2, 3, 5}, {3}))
    check_all<roomy_transport>(size, [](std::size_t bytes) { return bytes < mapped_from ? 1U : 2U; });
}

}  // namespace
