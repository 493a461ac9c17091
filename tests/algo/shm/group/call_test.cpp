#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <tutti/algo/shm/group/call.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algo::shm_group;

/// Ranks post the step that `work(shm_call, shm_group)` is about as one operation that has its turn.
template <class T, class Work>
tutti::routine meet(tutti::group_link<T> link, shm_group& shm, Work work) {
  shm_group::ticket turn{shm, link.link()};
  co_await turn;
  if (!shm.is_open()) co_await shm.open(link);
  tutti::algo::detail::shm_call<T> call{link, shm, tutti::barrier_args{}};
  co_await work(call, shm);
}

TEST_CASE("shm_call: what a rank stages before it posts a step, everyone else reads behind it") {
  for (const int size : {1, 2, 3, 5})
    links::run(size, [](auto& me) {
      me.run([&](auto link) {
        return meet(link, me.shm_group(), [&](auto call, shm_group&) -> tutti::routine {
          for (int round = 0; round < 20; ++round) {
            const std::uint64_t step = call.next();
            std::byte* const slot = co_await call.free_slot();
            *slot = static_cast<std::byte>(call.rank() * 10 + round);
            *call.inline_payload(call.rank(), step) = static_cast<std::byte>(round);
            expect(call.post() == step, "another step");
            co_await call.wait_all(step);
            for (int r = 0; r < call.size(); ++r)
              expect(*call.slot(r, step) == static_cast<std::byte>(r * 10 + round) &&
                         *call.inline_payload(r, step) == static_cast<std::byte>(round),
                     "what rank " + std::to_string(r) + " staged");
          }
        });
      });
    });
}

TEST_CASE("shm_call: to wait for one rank is not to wait for the others") {
  std::atomic<bool> rank_one_is_through{false};
  links::run(3, [&](auto& me) {
    me.run([&](auto link) {
      return meet(link, me.shm_group(), [&](auto call, shm_group&) -> tutti::routine {
        const std::uint64_t step = call.next();
        if (call.rank() == 2)  // posts when rank 1 has gone on without it
          while (!rank_one_is_through) std::this_thread::yield();
        call.post();
        if (call.rank() == 1) {
          co_await call.wait_rank(0, step);
          rank_one_is_through = true;
        }
        co_await call.wait_all(step);
      });
    });
  });
  CHECK(rank_one_is_through.load());
}

TEST_CASE("shm_call: operands are those of all ranks, in order, the own one from where it was") {
  links::run(3, [](auto& me) {
    me.run([&](auto link) {
      return meet(link, me.shm_group(), [&](auto call, shm_group&) -> tutti::routine {
        const std::vector<int> places{10, 20, 30};
        const int own = 0;
        const auto where = [&](int r) -> const void* { return &places[static_cast<std::size_t>(r)]; };
        const void* const* all = call.from_all(where);
        for (int r = 0; r < call.size(); ++r) expect(all[r] == where(r), "from_all");
        all = call.from_others(&own, where);
        for (int r = 0; r < call.size(); ++r) expect(all[r] == (r == call.rank() ? &own : where(r)), "from_others");
        co_return;
      });
    });
  });
}

TEST_CASE("shm_call: buffers are mapped where everyone has noted one that can be, and else none is used") {
  links::run<links::staging_transport>(3, [](auto& me) {
    std::byte* const shared = me.link().allocate(1000);
    std::vector<std::byte> plain(1000);
    shared[7] = static_cast<std::byte>(me.number());
    for (const int without : {-1, 1})
      me.run([&](auto link) {
        return meet(link, me.shm_group(), [&](auto call, shm_group& shm) -> tutti::routine {
          const auto place = call.place(call.rank() == without ? plain.data() : shared, 1000);
          expect((place == shm_group::no_offset) == (call.rank() == without), "what can be mapped");
          const std::uint64_t step = call.post({place, shm_group::no_offset});
          co_await call.wait_all(step);
          const bool mapped = call.map_all(step, &shm_group::buffer_descriptor::in, 1000, shm.room().in);
          expect(mapped == (without < 0), "all or nothing");
          for (int r = 0; mapped && r < call.size(); ++r)
            expect(shm.room().in[static_cast<std::size_t>(r)][7] == static_cast<std::byte>(r), "the memory of a rank");
          const std::uint64_t end = call.post();
          co_await call.wait_all(end);
        });
      });
    me.run([&](auto link) {
      return meet(link, me.shm_group(), [](auto call, shm_group&) -> tutti::routine {
        const auto end = call.post();
        co_await call.wait_all(end);
      });
    });
    me.link().deallocate(shared);
  });
}

}  // namespace
