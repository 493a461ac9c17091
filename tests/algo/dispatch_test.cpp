#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <tutti/algo/dispatch.hpp>
#include <tutti/algo/selection/supported.hpp>

#include <algo/links.hpp>
#include <algo/partial_order.hpp>

namespace {

using links::expect;
using tutti::algorithm;
using tutti::layout;

// Every way of a collective is a path of its own, and each leads to the same end; which order each folds in is tested
// with the algorithms.
TEST_CASE("dispatch: a collective goes each way that it can be asked for") {
  links::run(3, [](auto& me) {
    const auto try_all = [&](const auto& args, auto check) {
      using Args = std::remove_cvref_t<decltype(args)>;
      for (const algorithm via : tutti::algo::supported_algorithms<Args>) {
        if (via == algorithm::hierarchical) continue;  // needs to know who shares a machine
        me.run([&](auto link) {
          return via == algorithm::direct ? tutti::algo::run_shm(link, me.shm_group(), args)
                                          : tutti::algo::run_messages(link, args, via);
        });
        check(std::string(Args::name) + " by " + tutti::name(via));
      }
    };
    std::vector<links::word> in(30, links::letter(me.number())), out(30);
    const auto with = partial_order::appending();
    const bool root = me.number() == 1;
    const auto length = [](const links::word& w, std::uint32_t n) { return w.length == n; };
    try_all(tutti::all_reduce_args{links::in(in), links::out(out), with},
            [&](const std::string& what) { expect(length(out[29], 3), what); });
    try_all(tutti::reduce_args{links::in(in), root ? links::out(out) : tutti::buffer{}, with, 1},
            [&](const std::string& what) { expect(!root || length(out[29], 3), what); });
    const auto mine = static_cast<std::uint32_t>(me.number());
    try_all(tutti::scan_args{links::in(in), links::out(out), with},
            [&](const std::string& what) { expect(length(out[29], mine + 1), what); });
    tutti::exclusive_scan_args below{};
    below.in = links::in(in), below.out = links::out(out), below.op = with;
    try_all(below, [&](const std::string& what) { expect(me.number() == 0 || length(out[29], mine), what); });
    std::vector<links::word> part(10, links::letter(me.number()));
    try_all(tutti::reduce_scatter_args{links::in(in), links::out(part), with},
            [&](const std::string& what) { expect(length(part[9], 3), what); });
    const std::vector<std::size_t> tens(3, 10);
    try_all(tutti::reduce_scatter_v_args{links::in(in), links::out(part), tens, with},
            [&](const std::string& what) { expect(length(part[9], 3), what); });
    part.assign(10, links::letter(me.number()));
    const auto gathered = [&](const std::string& what) {
      for (std::size_t i = 0; i < 30; ++i) expect(out[i] == links::letter(static_cast<int>(i / 10)), what);
    };
    try_all(tutti::all_gather_args{links::in(part), links::out(out)}, gathered);
    try_all(tutti::all_gather_v_args{links::in(part), links::out(out), tens}, gathered);
    try_all(tutti::gather_args{links::in(part), root ? links::out(out) : tutti::buffer{}, layout::of_equal(10), 1},
            [&](const std::string& what) { root ? gathered(what) : void(); });
    try_all(
        tutti::scatter_args{root ? links::in(out) : tutti::const_buffer{}, links::out(part), layout::of_equal(10), 1},
        [&](const std::string& what) { expect(part[9] == links::letter(me.number()), what); });
    try_all(tutti::all_to_all_args{links::in(in), links::out(out), layout::of_equal(10), layout::of_equal(10)},
            gathered);
    try_all(tutti::broadcast_args{links::out(part), 1}, [&](const std::string& what) {
      expect(part[9] == links::letter(1), what);
      part.assign(10, links::letter(me.number()));
    });
  });
}

}  // namespace
