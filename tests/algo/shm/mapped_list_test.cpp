#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tutti/algo/message/coalesced.hpp>
#include <tutti/algo/shm/mapped_list.hpp>

#include <algo/links.hpp>

namespace {

using tutti::algo::shm_group;
using namespace tutti::algo::detail;
using places = std::vector<list_place>;

tutti::all_reduce_coalesced_args sum_of(const std::vector<std::span<int>>& chunks, std::size_t count) {
  return {{chunks.data(), chunks.size(), count, sizeof(int), tutti::dtype::i32,
           [](const void* items, std::size_t i) noexcept {
             return std::as_writable_bytes(static_cast<const std::span<int>*>(items)[i]);
           }},
          tutti::erase_type<int>(tutti::sum)};
}

struct result {
  std::uint64_t told = 0;
  list_fold how = list_fold::done;
  int rank = -1;
};

/// Every rank tells of its list, or of what `lie` makes of it, and folds its half of all: rank 0 the first.
template <class T, class Lie>
tutti::routine meet(tutti::group_link<T> l, shm_group& shm, tutti::all_reduce_coalesced_args a, Lie lie, result& out) {
  tutti::algo::detail::shm_turn<T> turn{l, shm};
  const shm_call<T> call = co_await turn.enter();
  call.begin(a);
  const std::uint64_t step = call.next();
  std::byte* const slot = co_await call.free_slot();
  out.told = tell_places(call, a.data, slot);
  if (out.told != shm_group::no_offset) out.told = lie(slot, out.told);
  call.post({out.told, shm_group::no_offset});
  co_await call.wait_all(step);
  list_cursor cursors[2];
  const std::size_t half = a.data.count / 2, begin = call.rank() == 0 ? 0 : half;
  out.how = fold_mapped_lists(call, shm, step, begin, call.rank() == 0 ? half : a.data.count - half, sizeof(int), a.op,
                              cursors, out.rank);
  const std::uint64_t end = call.post();
  co_await call.wait_all(end);
}

constexpr std::size_t count = 20001;

/// Of two ranks, 1 lies; what rank 0 found, and how many elements of its list are the sum then.
template <class Lie>
result found(Lie lie, std::size_t summed) {
  result first;
  links::run<links::staging_transport>(2, [&](auto& me) {
    const std::size_t cut = me.number() == 0 ? 7 : 11000;  // other chunks on each rank
    auto* data = reinterpret_cast<int*>(me.link().allocate(count * sizeof(int)));
    const std::span all{data, count};
    for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<int>(i) * (me.number() + 1);
    const std::vector<std::span<int>> chunks{all.first(cut), {}, all.subspan(cut)};
    result r;
    me.run([&](auto link) {
      return meet(
          link, me.shm_group(), sum_of(chunks, count),
          [&](std::byte* slot, std::uint64_t told) { return me.number() == 0 ? told : lie(slot, told); }, r);
    });
    links::expect(me.number() != 0 || r.told == 2, "empty chunks are not told of", r.told);
    if (me.number() == 0) first = r;
    std::size_t done = 0;
    while (done < count && all[done] == static_cast<int>(done) * 3) ++done;
    if (me.number() == 0) links::expect(done == summed, "summed", done);
  });
  return first;
}

/// The places in a slot, after `change(places)`.
template <class Change>
auto changed(Change change) {
  return [change](std::byte* slot, std::uint64_t told) {
    places p(told);
    std::memcpy(p.data(), slot, told * sizeof(list_place));
    change(p);
    if (!p.empty()) std::memcpy(slot, p.data(), p.size() * sizeof(list_place));
    return static_cast<std::uint64_t>(p.size());
  };
}

TEST_CASE("mapped_list: lists that are cut otherwise on each rank are folded where they are") {
  const result all = found([](std::byte*, std::uint64_t told) { return told; }, count);
  CHECK(all.how == list_fold::done);
}

// Element 0 is 0, and so the sum before anybody has folded.
TEST_CASE("mapped_list: places that are not those of such a list are foreign, and whose is told") {
  const auto is_foreign = [](const result& r) { return r.how == list_fold::foreign && r.rank == 1; };
  CHECK(is_foreign(found([](std::byte*, std::uint64_t) { return ~std::uint64_t{0} / 16; }, 1)));
  CHECK(is_foreign(found([](std::byte*, std::uint64_t) { return shm_group::slot_bytes / sizeof(list_place) + 1; }, 1)));
  CHECK(is_foreign(found(changed([](places& p) { p.clear(); }), 1)));
  CHECK(is_foreign(found(changed([](places& p) { p[0].bytes = 0; }), 1)));
  CHECK(is_foreign(found(changed([](places& p) { p[0].where = shm_group::no_offset; }), 1)));
  CHECK(is_foreign(found(changed([](places& p) { p.resize(1), p[0].bytes = 400; }), 100)));  // and then no more
}

TEST_CASE("mapped_list: a list that cannot be mapped, or is longer than a slot tells, is not told of") {
  links::run<links::staging_transport>(1, [](auto& me) {
    constexpr std::size_t most = shm_group::slot_bytes / sizeof(list_place);
    auto* data = reinterpret_cast<int*>(me.link().allocate((most + 1) * sizeof(int)));
    std::vector<int> elsewhere(1);
    std::vector<std::span<int>> chunks;
    const auto told = [&] {
      result r;
      me.run([&](auto link) {
        return [](auto l, shm_group& shm, tutti::all_reduce_coalesced_args a, result& out) -> tutti::routine {
          tutti::algo::detail::shm_turn turn{l, shm};
          const shm_call call = co_await turn.enter();
          call.begin(a);
          out.told = tell_places(call, a.data, co_await call.free_slot());
        }(link, me.shm_group(), sum_of(chunks, chunks.size()), r);
      });
      return r.told;
    };
    links::expect(told() == 0, "of nothing");
    for (std::size_t i = 0; i < most; ++i) chunks.push_back({data + i, 1});
    links::expect(told() == most, "as many as a slot tells", told());
    chunks.push_back({data + most, 1});
    links::expect(told() == shm_group::no_offset, "one more");
    chunks = {{data, 1}, elsewhere};
    links::expect(told() == shm_group::no_offset, "elsewhere");
  });
}

}  // namespace
