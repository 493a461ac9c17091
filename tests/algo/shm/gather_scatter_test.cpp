#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <tutti/algo/shm/gather_scatter.hpp>
#include <tutti/algo/shm/small.hpp>

#include <algo/parcels.hpp>

namespace {

const auto gather = [](auto link, auto& shm_group, const auto& a) {
  return tutti::algo::direct_gather(link, shm_group, a);
};
const auto scatter = [](auto link, auto& shm_group, const auto& a) {
  return tutti::algo::direct_scatter(link, shm_group, a);
};

TEST_CASE("shm gather_scatter: equal blocks come to the root, and from it") {
  parcels::check_gather<tutti::threads_transport>(gather);
  parcels::check_scatter<tutti::threads_transport>(scatter);
}

TEST_CASE("shm gather_scatter: blocks whose lengths the root alone knows") {
  parcels::check_uneven_rooted<tutti::threads_transport>(gather, scatter);
}

TEST_CASE("shm gather_scatter: a block that is not as long as the root says ends it, on all ranks") {
  std::vector<tutti::errc> seen(3);
  links::run(3, [&](auto& me) {
    const std::vector<std::size_t> lengths{1, 2, 3};
    std::vector<int> part(me.number() == 2 ? 2 : lengths[static_cast<std::size_t>(me.number())]), whole(6);
    const bool root = me.number() == 0;
    auto running = me.start([&](auto link) {
      return gather(link, me.shm_group(),
                    tutti::gather_args{links::in(part), root ? links::out(whole) : tutti::buffer{},
                                       root ? tutti::layout{lengths} : tutti::layout{}, 0});
    });
    auto code = tutti::nothrow(std::move(running)).wait().code;
    if (code == tutti::errc::ok)  // a rank that the root did not wait for hears of it with the next operation
      code = tutti::nothrow(me.start([&](auto link) { return tutti::algo::direct_barrier(link, me.shm_group()); }))
                 .wait()
                 .code;
    seen[static_cast<std::size_t>(me.number())] = code;
  });
  for (const auto code : seen) CHECK(code == tutti::errc::mismatch);
}

/// Of three ranks, the last has another length than the root says; all end with that, and nobody's other memory is
/// touched, though the root and the others reach into each other's arrays.
template <class Call>
void check_other_length(std::size_t own, std::size_t said, Call call) {
  constexpr std::size_t guard = 100000;
  links::run(3, [&](auto& me) {
    const std::vector<std::size_t> lengths{own, own, said};
    const bool root = me.number() == 0;
    std::vector<int> part(own + guard), whole(2 * own + said + guard);  // with zeros behind
    const std::span all{whole.data(), whole.size() - guard};
    std::fill_n(part.begin(), own, 1);
    std::fill_n(whole.begin(), all.size(), 2);
    const std::span mine = root ? all.first(own) : std::span{part.data(), own};  // in place: the root helps the others
    tutti::errc code = tutti::errc::ok;
    for (int i = 0; i < 2 && code == tutti::errc::ok; ++i)  // some hear of it with the next operation
      code = tutti::nothrow(me.start([&](auto link) {
               return call(link, me.shm_group(), mine, all, root ? tutti::layout{lengths} : tutti::layout{}, root);
             }))
                 .wait()
                 .code;
    links::expect(code == tutti::errc::mismatch, "another end", static_cast<std::size_t>(code));
    for (std::size_t i = 0; i < guard; ++i) {
      links::expect(part[own + i] == 0, "beyond a rank's array", i);
      links::expect(whole[whole.size() - guard + i] == 0, "beyond the root's array", i);
    }
  });
}

TEST_CASE("shm gather_scatter: a long block of another length than the root says touches nobody's other memory") {
  for (const std::size_t own : {std::size_t{200000}, std::size_t{300000}})  // beyond what a slot holds
    for (const std::size_t said : {own - 70000, own + 70000}) {
      CAPTURE(own);
      CAPTURE(said);
      for (int round = 0; round < 10; ++round)
        check_other_length(own, said, [](auto link, auto& shm_group, auto mine, auto all, auto blocks, auto root) {
          return gather(link, shm_group,
                        tutti::gather_args{links::in(mine), root ? links::out(all) : tutti::buffer{}, blocks, 0});
        });
      for (int round = 0; round < 10; ++round)
        check_other_length(own, said, [](auto link, auto& shm_group, auto mine, auto all, auto blocks, auto root) {
          return scatter(
              link, shm_group,
              tutti::scatter_args{root ? links::in(all) : tutti::const_buffer{}, links::out(mine), blocks, 0});
        });
    }
}

}  // namespace
