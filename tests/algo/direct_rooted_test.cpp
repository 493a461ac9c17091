#include <doctest/doctest.h>

#include <tutti/algo/direct_rooted.hpp>

#include <algo/parcels.hpp>

namespace {

const auto gather = [](auto link, auto& board, const auto& a) { return tutti::algo::direct_gather(link, board, a); };
const auto scatter = [](auto link, auto& board, const auto& a) { return tutti::algo::direct_scatter(link, board, a); };

TEST_CASE("direct_rooted: equal blocks come to the root, and from it") {
  parcels::check_gather<tutti::threads_transport>(gather);
  parcels::check_scatter<tutti::threads_transport>(scatter);
}

TEST_CASE("direct_rooted: blocks whose lengths the root alone knows") {
  parcels::check_uneven_rooted<tutti::threads_transport>(gather, scatter);
}

TEST_CASE("direct_rooted: a block that is not as long as the root says ends it, on all ranks") {
  std::vector<tutti::errc> seen(3);
  lanes::run(3, [&](auto& me) {
    const std::vector<std::size_t> lengths{1, 2, 3};
    std::vector<int> part(me.number() == 2 ? 2 : lengths[static_cast<std::size_t>(me.number())]), whole(6);
    const bool root = me.number() == 0;
    auto running = me.start([&](auto link) {
      return gather(link, me.board(),
                    tutti::gather_args{lanes::in(part), root ? lanes::out(whole) : tutti::buffer{},
                                       root ? tutti::layout{lengths} : tutti::layout{}, 0});
    });
    auto code = tutti::nothrow(std::move(running)).wait().code;
    if (code == tutti::errc::ok)  // a rank that the root did not wait for hears of it with the next operation
      code = tutti::nothrow(me.start([&](auto link) { return tutti::algo::direct_barrier(link, me.board()); }))
                 .wait()
                 .code;
    seen[static_cast<std::size_t>(me.number())] = code;
  });
  for (const auto code : seen) CHECK(code == tutti::errc::mismatch);
}

}  // namespace
