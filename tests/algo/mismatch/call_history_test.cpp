#include <doctest/doctest.h>

#include <cstdint>

#include <tutti/algo/shm/group/group.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;

TEST_CASE("call_history: what this rank called is recalled, and not what went by messages, which was noted") {
  using tutti::algorithm;
  using tutti::tag;
  using tutti::algo::call_of;
  links::run(2, [](auto& me) {
    me.run([&](auto l) {
      return [](auto link, shm_group& on) -> tutti::routine {
        shm_group::ticket turn{on, link.link()};
        co_await turn;
        const auto context = link.members().context;
        const auto short_id = [&](std::uint64_t sequence) {
          return on.recall(tag::make(context, sequence, 5)).short_id;
        };
        const auto reduced = call_of(7, tutti::all_reduce_args{}), told = call_of(9, tutti::broadcast_sized_args{});
        on.remember(reduced, algorithm::ring);
        expect(short_id(7) == 0, "recalled before the shm group was open");
        co_await on.open(link);
        on.begin(reduced);
        on.begin(call_of(8, tutti::barrier_args{}));
        on.remember(told, algorithm::automatic);
        on.remember(call_of(10, tutti::all_reduce_args{}), algorithm::ring);
        const auto direct = tutti::algo::noted(context, reduced, algorithm::direct);
        expect(on.recall(direct.tag).all == direct.all && short_id(7) == direct.short_id,
               "another call than was noted");
        expect(short_id(8) == call_of(8, tutti::barrier_args{}).short_id(), "no barrier");
        expect(short_id(9) == 0 && short_id(10) == 0, "what went by messages");
        expect(on.recall(tag::make(context + 1, 7, 0)).short_id == 0, "of another group");
      }(l, me.shm_group());
    });
  });
}

}  // namespace
