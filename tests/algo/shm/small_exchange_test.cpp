#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tutti/algo/shm/small_exchange.hpp>
#include <tutti/core/args.hpp>

namespace {

using tutti::algo::detail::exchange_of;
using tutti::algo::detail::small_exchange;

TEST_CASE("small_exchange: which calls are small") {
  const auto elements = [](std::size_t n) { return tutti::const_buffer{nullptr, n, 1, tutti::dtype::u8}; };
  const auto room = [](std::size_t n) { return tutti::buffer{nullptr, n, 1, tutti::dtype::u8}; };
  const auto is_small = [](const auto& a) { return tutti::algo::is_small(a, 8); };
  const auto equal = tutti::layout::of_equal(1);
  CHECK(is_small(tutti::reduce_args{elements(4095), {}, {}}));
  CHECK_FALSE(is_small(tutti::reduce_args{elements(4096), {}, {}}));
  CHECK_FALSE(is_small(tutti::scan_args{elements(4096), {}, {}}));
  CHECK(is_small(tutti::gather_args{elements(4095), {}, equal}));
  CHECK_FALSE(is_small(tutti::gather_v_args{{elements(1), {}, {}}}));  // not all ranks know how long its blocks are
  CHECK(is_small(tutti::scatter_args{{}, room(1024), equal}));
  CHECK_FALSE(is_small(tutti::scatter_args{{}, room(1025), equal}));
  CHECK_FALSE(is_small(tutti::all_to_all_v_args{{elements(1), {}, {}, {}}}));
  const std::vector<std::size_t> little{0, 8000, 1, 0, 0, 0, 90, 101}, much{0, 8000, 1, 0, 0, 0, 90, 102};
  CHECK(is_small(tutti::all_gather_v_args{elements(90), {}, little}));
  CHECK_FALSE(is_small(tutti::all_gather_v_args{elements(90), {}, much}));
  CHECK(is_small(tutti::reduce_scatter_v_args{{}, room(90), little, {}}));
  CHECK_FALSE(is_small(tutti::reduce_scatter_v_args{{}, room(90), much, {}}));
  const auto list = [](std::size_t n) { return tutti::buffer_list{nullptr, 1, n, 1, tutti::dtype::u8, nullptr}; };
  CHECK(is_small(tutti::all_reduce_coalesced_args{list(8192), {}}));
  CHECK_FALSE(is_small(tutti::all_reduce_coalesced_args{list(8193), {}}));
  // of so many ranks that reading all of them takes longer than a second round
  CHECK(tutti::algo::is_small(tutti::all_reduce_coalesced_args{list(4032), {}}, 65));
  CHECK_FALSE(tutti::algo::is_small(tutti::all_reduce_coalesced_args{list(4033), {}}, 65));
}

/// What a rank takes: so many bytes from `begin` on, of the ranks from `first` up to `last`.
void check_takes(const small_exchange& x, std::size_t begin, std::size_t taken, int first, int last) {
  CHECK(x.begin == begin);
  CHECK(x.taken == taken);
  CHECK(x.first == first);
  CHECK(x.last == last);
}

TEST_CASE("small_exchange: who puts, and who takes what of whom") {
  constexpr int me = 2, ranks = 4;
  const tutti::const_buffer block{nullptr, 3, 8, tutti::dtype::f64}, whole{nullptr, 12, 8, tutti::dtype::f64};
  const tutti::buffer part{nullptr, 3, 8, tutti::dtype::f64};
  const auto equal = tutti::layout::of_equal(3);
  check_takes(exchange_of(tutti::barrier_args{}, me, ranks), 0, 0, 0, 4);
  check_takes(exchange_of(tutti::all_reduce_args{block, part, {}}, me, ranks), 0, 24, 0, 4);
  check_takes(exchange_of(tutti::reduce_scatter_args{whole, part, {}}, me, ranks), 48, 24, 0, 4);
  CHECK(exchange_of(tutti::reduce_scatter_args{whole, part, {}}, me, ranks).count == 3);
  CHECK(exchange_of(tutti::reduce_scatter_args{whole, part, {}}, me, ranks).bytes == 96);
  check_takes(exchange_of(tutti::all_to_all_args{whole, {}, equal, equal}, me, ranks), 48, 24, 0, 4);
  check_takes(exchange_of(tutti::scan_args{block, part, {}}, me, ranks), 0, 24, 0, 3);
  check_takes(exchange_of(tutti::exclusive_scan_args{{block, part, {}}}, me, ranks), 0, 24, 0, 2);
  CHECK(exchange_of(tutti::scan_args{block, part, {}}, me, ranks).puts);
  CHECK_FALSE(exchange_of(tutti::scan_args{block, part, {}}, 3, ranks).puts);  // nobody is behind it
}

TEST_CASE("small_exchange: blocks of any lengths are put one behind the other") {
  constexpr int me = 2, ranks = 4;
  const std::vector<std::size_t> lengths{5, 0, 3, 4};
  const tutti::const_buffer block{nullptr, 3, 8, tutti::dtype::f64}, whole{nullptr, 12, 8, tutti::dtype::f64};
  const tutti::buffer part{nullptr, 3, 8, tutti::dtype::f64};
  CHECK(exchange_of(tutti::all_gather_v_args{block, {}, lengths}, me, ranks).bytes == 40);
  const auto x = exchange_of(tutti::reduce_scatter_v_args{whole, part, lengths, {}}, me, ranks);
  check_takes(x, 40, 24, 0, 4);
  CHECK(x.count == 3);
  CHECK(x.bytes == 96);
}

TEST_CASE("small_exchange: the root takes from all, or all from the root") {
  constexpr int ranks = 4, root = 1;
  const tutti::const_buffer in{nullptr, 3, 8, tutti::dtype::f64};
  const tutti::buffer out{nullptr, 3, 8, tutti::dtype::f64};
  const auto equal = tutti::layout::of_equal(3);
  for (const int me : {root, 2}) {
    const bool is_root = me == root;
    for (const auto& x : {exchange_of(tutti::reduce_args{in, out, {}, root}, me, ranks),
                          exchange_of(tutti::gather_args{in, out, equal, root}, me, ranks)}) {
      check_takes(x, 0, 24, 0, is_root ? 4 : 0);
      CHECK(x.puts != is_root);
    }
    const auto sent = exchange_of(tutti::broadcast_args{out, root}, me, ranks);
    check_takes(sent, 0, 24, is_root ? 0 : root, is_root ? 0 : root + 1);
    CHECK(sent.puts == is_root);
    const auto dealt = exchange_of(tutti::scatter_args{in, out, equal, root}, me, ranks);
    check_takes(dealt, static_cast<std::size_t>(me) * 24, 24, root, root + 1);  // the root its own block, too
    CHECK(dealt.bytes == 96);
    CHECK(dealt.puts == is_root);
  }
}

}  // namespace
