#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/message/coalesced.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::word;
using spans = std::vector<std::span<word>>;

/// Buffers of odd lengths, some empty, cut otherwise on every rank, together within a slot, a slot's worth, and more:
/// `make(link, group, args)` folds all in the order of the ranks. They lie in memory that others map where `mapped`
/// says so of a rank, on a transport that maps only what it has allocated.
template <tutti::transport T = tutti::threads_transport, class Make>
void check_order(Make make, bool (*mapped)(int rank) = [](int) { return false; }) {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 9}, {3}))
    links::run<T>(size, [&](auto& me) {
      constexpr std::size_t most = 50000;
      std::vector<word> own(most);
      const std::span<word> ours{reinterpret_cast<word*>(me.link().allocate(most * sizeof(word))), most};
      for (const std::size_t count : {0U, 1U, 1000U, 16384U, 16385U, 50000U}) {
        const auto all = (mapped(me.number()) ? ours : std::span{own}).first(count);
        std::fill(all.begin(), all.end(), links::letter(me.number()));
        spans chunks;
        const auto odd = static_cast<std::size_t>(13 + me.number() % 3);
        for (std::size_t at = 0, k = 0; at < count || k < 3; ++k) {
          const std::size_t n = std::min(count - at, k % 4 == 1 ? 0 : k * k * odd + 1);
          chunks.push_back(all.subspan(at, n));
          at += n;
        }
        const tutti::all_reduce_coalesced_args a{links::list(chunks, count), tutti::erase_type<word>(links::append{})};
        me.run([&](auto link) { return make(link, me.shm_group(), a); });
        for (std::size_t i = 0; i < count; ++i) links::expect(all[i] == links::spelled(0, me.size()), "element", i);
      }
    });
}

TEST_CASE("coalesced: by memory, staged or mapped by all, the order of the ranks is the order of the folds") {
  const auto direct = [](auto link, auto& shm_group, const auto& a) {
    return tutti::algo::direct_all_reduce_coalesced(link, shm_group, a);
  };
  check_order(direct);  // of threads everything is mapped
  for (bool (*mapped)(int) : {+[](int) { return false; }, +[](int) { return true; }, +[](int r) { return r % 2 == 1; }})
    check_order<links::staging_transport>(direct, mapped);
}

TEST_CASE("coalesced: what all ranks map is not copied, and has the bits of what is staged") {
  links::run<links::staging_transport>(3, [](auto& me) {
    constexpr std::size_t count = 100000;  // two slots
    auto* mapped = reinterpret_cast<float*>(me.link().allocate(count * sizeof(float)));
    std::vector<float> plain(count);
    for (std::size_t i = 0; i < count; ++i)
      mapped[i] = plain[i] = std::ldexp(static_cast<float>(i * 7919 % 4099) + 0.1F, static_cast<int>(i % 41) - 20) *
                             static_cast<float>(me.number() + 1);
    for (float* data : {mapped, plain.data()}) {
      std::vector<std::span<float>> chunks{{data, 17}, {data + 17, 70000}, {data + 70017, count - 70017}};
      const tutti::all_reduce_coalesced_args a{
          {chunks.data(), chunks.size(), count, sizeof(float), tutti::dtype::f32,
           [](const void* items, std::size_t i) noexcept {
             return std::as_writable_bytes(static_cast<const std::span<float>*>(items)[i]);
           }},
          tutti::erase_type<float>(tutti::mean)};
      const std::uint64_t before = me.shm_group().step();
      me.run([&](auto link) { return tutti::algo::direct_all_reduce_coalesced(link, me.shm_group(), a); });
      links::expect((me.shm_group().step() - before == 2) == (data == mapped), "rounds",
                    me.shm_group().step() - before);
    }
    links::expect(std::memcmp(mapped, plain.data(), count * sizeof(float)) == 0, "bits");
  });
}

TEST_CASE("coalesced: buffers that come together in one are reduced by messages, in the way asked for") {
  check_order([](auto link, auto&, const auto& a) {
    return tutti::algo::packed_all_reduce_coalesced(link, a, tutti::algorithm::recursive_doubling);
  });
}

}  // namespace
