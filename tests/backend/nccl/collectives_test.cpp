#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <support/gpus.hpp>
#include <tutti/async/progress_thread.hpp>
#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>

namespace {

using tutti::errc;
using tutti::nccl_calls;

// Where its ranks are is known to the world that it was made from: a device communicator of two machines cannot say.
template <class C>
concept knows_its_place = requires(const C& c) { c.local_rank(); } || requires(const C& c) { c.local_size(); } ||
                          requires(const C& c) { c.node_rank(); };
static_assert(!knows_its_place<gpus> && knows_its_place<tutti::communicator<tutti::threads>>);

// Every collective once, with values that tell ranks and places apart.
void every_collective(gpus& g) {
  const int n = g.size(), me = g.rank();
  const std::size_t size = static_cast<std::size_t>(n), mine = static_cast<std::size_t>(me);
  const auto f = [](int r, std::size_t i) { return static_cast<float>(100 * r) + static_cast<float>(i); };
  const auto from = [&](std::size_t count, std::size_t first = 0) {
    std::vector<float> v(count);
    for (std::size_t i = 0; i < count; ++i) v[i] = f(me, first + i);
    return v;
  };
  const auto total = [&](std::size_t i) {
    float t = 0;
    for (int r = 0; r < n; ++r) t += f(r, i);
    return t;
  };
  std::vector<float> a = from(5), b(5 * size, -1), all = from(2 * size), blocks(2 * size, -1);

  std::vector<float> out(5, -1);
  g.all_reduce(on_device(a), on_device(out)).wait();
  for (std::size_t i = 0; i < 5; ++i) CHECK(out[i] == total(i));
  g.all_reduce(on_device(out), tutti::max).wait();
  CHECK(out[1] == total(1));
  g.all_reduce(on_device(out), tutti::mean).wait();
  CHECK(out[1] == total(1));

  std::vector<float> rooted = from(5);
  g.reduce(on_device(rooted), 1).wait();
  CHECK(rooted[4] == (me == 1 ? total(4) : f(me, 4)));

  std::vector<float> part(2, -1);
  g.reduce_scatter(on_device(all), on_device(part)).wait();
  CHECK(part[1] == total(2 * mine + 1));
  std::vector<std::size_t> counts(size);
  std::iota(counts.begin(), counts.end(), std::size_t{0});  // that of rank 0 is empty
  const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  std::vector<float> uneven = from(sum), own(mine, -1), gathered(sum, -1);
  g.reduce_scatter_v(on_device(uneven), on_device(own), counts).wait();
  const std::size_t first = mine * (mine + 1) / 2 - mine;
  for (std::size_t i = 0; i < mine; ++i) CHECK(own[i] == total(first + i));

  g.broadcast(on_device(out), 2).wait();
  g.all_gather(on_device(a), on_device(b)).wait();
  for (int r = 0; r < n; ++r) CHECK(b[5 * static_cast<std::size_t>(r) + 3] == f(r, 3));
  std::vector<float> piece = from(mine);
  g.all_gather_v(on_device(piece), on_device(gathered), counts).wait();
  CHECK(gathered[sum - 1] == f(n - 1, size - 2));

  b.assign(b.size(), -1);
  g.gather(on_device(a), on_device(b), 0).wait();
  CHECK(b[5 * (size - 1)] == (me == 0 ? f(n - 1, 0) : -1));
  gathered.assign(sum, -1);
  g.gather_v(on_device(piece), on_device(gathered), counts, n - 1).wait();
  CHECK(gathered[1] == (me == n - 1 ? f(2, 0) : -1));
  g.scatter(on_device(all), on_device(part), 1).wait();
  CHECK(part[0] == f(1, 2 * mine));
  g.scatter_v(on_device(uneven), on_device(own), counts, 1).wait();
  for (std::size_t i = 0; i < mine; ++i) CHECK(own[i] == f(1, first + i));

  g.all_to_all(on_device(all), on_device(blocks)).wait();
  for (int r = 0; r < n; ++r) CHECK(blocks[2 * static_cast<std::size_t>(r) + 1] == f(r, 2 * mine + 1));
  const std::vector<std::size_t> ones(size, 1);
  std::vector<float> exchanged(size, -1);
  g.all_to_all_v(on_device(all), ones, on_device(exchanged), ones).wait();
  for (int r = 0; r < n; ++r) CHECK(exchanged[static_cast<std::size_t>(r)] == f(r, mine));

  std::vector<float> x(1, 1), y(3, 2);
  const std::vector<std::span<float>> lists{std::span{x}, std::span{y}};
  g.all_reduce_coalesced(lists).wait();
  CHECK(x[0] == n);
  CHECK(y[2] == 2 * n);
  g.barrier().wait();

  // Messages that cross go together.
  std::vector<float> there(4, f(me, 7)), here(4, -1);
  {
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    std::vector<gpus::started<tutti::send_args>> both;
    {
      tutti::nccl_group together{g};
      both.push_back(g.send(on_device(there), next));
      both.push_back(g.recv(on_device(here), before));
    }
    for (auto& o : both) o.wait();
    CHECK(here[3] == f(before, 7));

    auto sending = g.prepare().send(on_device(there), next);
    auto receiving = g.prepare().recv(on_device(here), before);
    for (int round = 0; round < 3; ++round) {
      here[3] = -1;
      both.clear();
      {
        tutti::nccl_group together{g};
        both.push_back(sending.start());
        both.push_back(receiving.start());
      }
      for (auto& o : both) o.wait();
      CHECK(here[3] == f(before, 7));
    }
  }

  auto prepared = g.prepare().all_reduce(on_device(x), tutti::max);
  for (int i = 0; i < 3; ++i) prepared.start().wait();
  CHECK(x[0] == n);
  const auto steps = [](gpus& w, std::vector<float>& v) -> tutti::task<> {
    co_await w.all_reduce(on_device(v));
    co_await w.barrier();
  };
  tutti::sync_wait(g.engine(), steps(g, x));
  CHECK(x[0] == n * n);
}

TEST_CASE("nccl: every collective, in calls that block and in those whose launch takes a while") {
  for (const nccl_calls calls : {nccl_calls::nonblocking, nccl_calls::blocking})
    for (const int polls : {0, 3}) {
      fake::machine machine;
      if (polls == 3) machine.version = 22704;  // without all_to_all, gather and scatter of its own
      machine.polls_per_launch = polls;
      run_gpus(4,
               [&](gpus& g, auto&) {
                 std::optional<tutti::progress_thread> helper;
                 if (g.rank() == 1) helper.emplace(g.engine());  // whoever drives
                 every_collective(g);
               },
               {.calls = calls});
      std::size_t own = 0;
      for (const fake::call& c : machine.calls())
        own += c.what == "ncclAlltoAll" || c.what == "ncclGather" || c.what == "ncclScatter";
      CHECK(own == (polls == 3 ? 0 : 12));
      CHECK(machine.misuses == 0);
      CHECK(machine.left() == 0);
    }
}

template <class T, class Op>
double reduced(T mine, Op with, gpus& g) {
  std::array<T, 3> v;
  v.fill(mine);
  g.all_reduce(tutti::cuda::device_span<T>{v.data(), v.size()}, with).wait();
  return static_cast<double>(static_cast<float>(v[2]));
}

TEST_CASE("nccl: types and reductions are NCCL's") {
  fake::machine machine;
  run_gpus(4, [](gpus& g, auto&) {
    const auto one = static_cast<float>(g.rank() + 1);
    CHECK(reduced(tutti::float16{one}, tutti::sum, g) == 10);
    CHECK(reduced(tutti::bfloat16{one}, tutti::mean, g) == 2.5);
    CHECK(reduced(tutti::float16{one}, tutti::mean, g) == 2.5);
    CHECK(reduced(tutti::float8_e4m3{one}, tutti::sum, g) == 10);
    CHECK(reduced(tutti::float8_e5m2{one}, tutti::max, g) == 4);
    CHECK(reduced(static_cast<double>(one), tutti::prod, g) == 24);
    CHECK(reduced(static_cast<std::int8_t>(one), tutti::mean, g) == 2);
    CHECK(reduced(static_cast<std::uint64_t>(one), tutti::min, g) == 1);
    CHECK(reduced(g.rank() == 2, tutti::sum, g) == 1);
    CHECK(reduced(g.rank() == 2, tutti::band, g) == 0);
    // A factor of its own on each rank.
    CHECK(reduced(1.0F, tutti::premul_sum(one), g) == 10);
    CHECK(reduced(tutti::float16{2.0F}, tutti::premul_sum(0.25), g) == 2);
    CHECK(reduced(std::int32_t{3}, tutti::premul_sum(2), g) == 24);
  });
  CHECK(machine.left() == 0);
}

TEST_CASE("nccl: what NCCL cannot do is refused before anything is started, and the communicator goes on") {
  fake::machine machine;
  run_gpus(3, [](gpus& g, auto&) {
    std::vector<tutti::bfloat16> narrow(6);
    std::vector<std::int16_t> shorts(6);
    std::vector<float> v(6, 1);
    errc kind{};
    CHECK(words_of([&] { g.all_reduce(on_device(narrow), tutti::mean).wait(); }, kind).find("all_reduce: NCCL would") ==
          0);
    CHECK(kind == errc::unsupported);
    CHECK(words_of([&] { g.reduce(on_device(shorts), 0).wait(); }, kind).find("32 bits") != std::string::npos);
    words_of([&] { g.all_reduce(on_device(v), [](float a, float) { return a; }).wait(); }, kind);
    CHECK(kind == errc::unsupported);
    CHECK(words_of([&] { g.send(on_device(v), (g.rank() + 1) % 3, 7).wait(); }, kind).find("tag") != std::string::npos);
    CHECK(words_of([&] { g.all_to_all(on_device(v), on_device(v)).wait(); }, kind).find("in place") !=
          std::string::npos);
    CHECK_THROWS_AS(g.all_reduce(on_device(v), tutti::sum, {.via = tutti::algorithm::ring}).wait(), tutti::usage_error);
    CHECK_THROWS_AS(g.all_reduce(on_device(v), tutti::sum, {.order = tutti::reduction_order::rank}).wait(),
                    tutti::usage_error);
    g.all_reduce(on_device(v), tutti::mean).wait();
    CHECK(v[5] == doctest::Approx(1));
  });
}

TEST_CASE("nccl: a mean of 8-bit floats is refused on several ranks") {
  for (const int ranks : {1, 2}) {
    fake::machine machine;
    run_gpus(ranks, [ranks](gpus& g, auto&) {
      std::vector<tutti::float8_e4m3> v(2, tutti::float8_e4m3{0x1p-9F});
      errc kind{};
      const auto words = words_of([&] { g.all_reduce(on_device(v), tutti::mean).wait(); }, kind);
      CHECK(kind == (ranks == 1 ? errc::ok : errc::unsupported));
      CHECK((words.find("all_reduce: NCCL would round each operand / ranks to 8 bits") == 0) == (ranks > 1));
      CHECK(static_cast<float>(v[1]) == 0x1p-9F);
      g.barrier().wait();
    });
  }
}

TEST_CASE("nccl: a product with 8-bit floats of one rank, which NCCL lacks, is refused, and the communicator goes on") {
  for (const int ranks : {1, 2}) {
    fake::machine machine;
    run_gpus(ranks, [ranks](gpus& g, auto&) {
      std::vector<tutti::float8_e4m3> v(6, tutti::float8_e4m3{2.0F});
      std::vector<tutti::float8_e5m2> in(6), out(6);
      const auto half = tutti::premul_sum(0.5);
      errc kind{};
      const auto alone = [&](const std::string& words, const std::string& call) {
        const bool named = words.find(call + ": NCCL cannot multiply 8-bit floats in a world of one rank") == 0;
        CHECK((ranks == 1 ? kind == errc::unsupported && named : kind == errc::ok));
      };
      alone(words_of([&] { g.all_reduce(on_device(v), half).wait(); }, kind), "all_reduce");
      CHECK(static_cast<float>(v[5]) == 2);  // as it was, or 2 x 0.5 of each of two
      alone(words_of([&] { g.reduce(on_device(in), on_device(out), 0, half).wait(); }, kind), "reduce");
      g.all_reduce(on_device(v), tutti::sum).wait();
      CHECK(static_cast<float>(v[5]) == 2 * ranks);
    });
    CHECK(machine.left() == 0);
  }
}

TEST_CASE("nccl: counts beyond 32 bits arrive whole") {
  fake::machine machine;
  machine.dry = true;
  const std::size_t many = (std::size_t{1} << 33U) + 1;
  run_gpus(2, [&](gpus& g, auto&) {
    float none = 0;
    const tutti::cuda::device_span<float> data{&none, many};
    g.all_reduce(data).wait();
    g.broadcast(data, 0).wait();
    const auto elsewhere = reinterpret_cast<float*>(std::uintptr_t{1} << 45U);
    g.all_to_all(data.first(many - 1), tutti::cuda::device_span<float>{elsewhere, many}).wait();
    g.gather(data, tutti::cuda::device_span<float>{elsewhere, 2 * many}, 1).wait();
  });
  std::vector<std::size_t> seen;
  for (const fake::call& c : machine.calls())
    if (c.rank == 0 &&
        (c.what == "ncclAllReduce" || c.what == "ncclBroadcast" || c.what == "ncclAlltoAll" || c.what == "ncclGather"))
      seen.push_back(c.count);
  CHECK(seen == std::vector<std::size_t>{many, 4 * many, 2 * (many - 1), 4 * many});
}

TEST_CASE("nccl: a group is one launch") {
  fake::machine machine;
  run_gpus(2, [](gpus& g, auto&) {
    std::vector<float> a(1, 1), b(1, 2), c(1, 3);
    std::vector<gpus::started<tutti::all_reduce_args>> running;
    {
      tutti::nccl_group together{g};
      for (auto* v : {&a, &b, &c}) running.push_back(g.all_reduce(on_device(*v)));
    }
    for (auto& o : running) o.wait();
    CHECK(a[0] + b[0] + c[0] == 12);
  });
  std::size_t launches = 0;
  for (const fake::call& c : machine.calls()) launches += c.what == "launch" && c.count == 3;
  CHECK(launches == 2);
}

TEST_CASE("nccl: a product of one rank is whole, though NCCL before 2.29.7 leaves out the end of some") {
  for (const int version : {22903, 22907}) {
    fake::machine machine;
    machine.version = version;
    run_gpus(1, [](gpus& g, auto&) {
      const std::size_t n = 131073;  // one more than its 32 blocks share
      const auto twice = tutti::premul_sum(2.0F);
      const auto whole = [&](auto call) {
        std::vector<float> in(n, 3), out(n, -1);
        call(on_device(in), on_device(out));
        return static_cast<std::size_t>(std::ranges::count(out, 6.0F));
      };
      CHECK(whole([&](auto in, auto out) { g.all_reduce(in, out, twice).wait(); }) == n);
      CHECK(whole([&](auto in, auto out) { g.reduce(in, out, 0, twice).wait(); }) == n);
      CHECK(whole([&](auto in, auto out) { g.reduce_scatter(in, out, twice).wait(); }) == n);
      const std::array<std::size_t, 1> counts{n};
      CHECK(whole([&](auto in, auto out) { g.reduce_scatter_v(in, out, counts, twice).wait(); }) == n);
      std::vector<float> small(5, 3), large(n, 3);
      const std::array lists{on_device(small), on_device(large)};
      g.all_reduce_coalesced(lists, twice).wait();
      CHECK(std::ranges::count(small, 6.0F) == 5);
      CHECK(static_cast<std::size_t>(std::ranges::count(large, 6.0F)) == n);
    });
    std::size_t calls = 0;
    for (const fake::call& c : machine.calls()) calls += c.what == "ncclAllReduce";
    CHECK(calls == (version == 22903 ? 5 : 3));
    CHECK(machine.left() == 0);
  }
}

}  // namespace
