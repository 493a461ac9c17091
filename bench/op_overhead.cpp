// Measures the overhead of an operation: issuing, waiting and awaiting, in a world of one and between two threads. Also
// that of a reducer for each parameter of one element, with the all_reduces of its buckets.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/async/task.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/transport/threads.hpp>

namespace {

using world = tutti::communicator<tutti::threads>;
using clock_type = std::chrono::steady_clock;

// Operations between two readings of the clock: as many as a communicator has slots for from the start.
constexpr int batch = 64;

world world_of_one() { return tutti::join(std::make_shared<tutti::threads_hub>(1), 0); }

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

struct all_reduce {
  std::vector<float> data{1};
  tutti::op operator()(world& on) { return on.all_reduce(data); }
};
struct barrier {
  tutti::op operator()(world& on) { return on.barrier(); }
};
struct prepared_all_reduce {
  std::vector<float> data{1};
  decltype(std::declval<world&>().prepare().all_reduce(std::declval<std::vector<float>&>())) ready;
  explicit prepared_all_reduce(world& on) : ready(on.prepare().all_reduce(data)) {}
  tutti::op operator()(world&) { return ready.start(); }
};

template <class Issue>
Issue made_for(world& on) {
  if constexpr (std::is_constructible_v<Issue, world&>)
    return Issue{on};
  else
    return Issue{};
}

template <class Issue>
void issue_and_wait(benchmark::State& state) {
  world on = world_of_one();
  auto issue = made_for<Issue>(on);
  for (auto _ : state) issue(on).wait();
}

/// Times the calls that issue operations; awaits the operations outside of the time.
template <class Issue>
void issue_alone(benchmark::State& state) {
  world on = world_of_one();
  auto issue = made_for<Issue>(on);
  std::vector<tutti::op> ops;
  ops.reserve(batch);
  while (state.KeepRunningBatch(batch)) {
    const auto start = clock_type::now();
    for (int i = 0; i < batch; ++i) ops.push_back(issue(on));
    state.SetIterationTime(seconds_since(start));
    ops.clear();
  }
}

/// Times the awaits of operations that have ended: each takes the result and frees the slot.
tutti::task<> awaits(world& on, benchmark::State& state) {
  all_reduce issue;
  std::vector<tutti::op> ops;
  ops.reserve(batch);
  while (state.KeepRunningBatch(batch)) {
    for (int i = 0; i < batch; ++i) ops.push_back(issue(on));
    const auto start = clock_type::now();
    for (auto& one : ops) co_await std::move(one);
    state.SetIterationTime(seconds_since(start));
    ops.clear();
  }
}
void co_await_of_a_ready_op(benchmark::State& state) {
  world on = world_of_one();
  tutti::sync_wait(on, awaits(on, state));
}

/// Times wait() for operations that have ended.
void wait_for_a_ready_op(benchmark::State& state) {
  world on = world_of_one();
  all_reduce issue;
  std::vector<tutti::op> ops;
  ops.reserve(batch);
  while (state.KeepRunningBatch(batch)) {
    for (int i = 0; i < batch; ++i) ops.push_back(issue(on));
    const auto start = clock_type::now();
    for (auto& one : ops) one.wait();
    state.SetIterationTime(seconds_since(start));
    ops.clear();
  }
}

/// Times operations between two ranks, each a thread. Rank 0 tells rank 1 if another round follows.
void between_two_threads(benchmark::State& state) {
  constexpr int round = 1000;
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  const auto rounds = [](world& on, auto more, auto timed) {
    std::vector<int> again{0};
    std::vector<float> data{1};
    for (;;) {
      again[0] = more();
      on.broadcast(again, 0).wait();
      if (again[0] == 0) break;
      const auto start = clock_type::now();
      for (int i = 0; i < round; ++i) on.all_reduce(data).wait();
      timed(seconds_since(start));
    }
  };
  std::jthread other([&] {
    world on = tutti::join(hub, 1);
    rounds(on, [] { return 0; }, [](double) {});
  });
  world on = tutti::join(hub, 0);
  rounds(on, [&] { return state.KeepRunningBatch(round) ? 1 : 0; }, [&](double s) { state.SetIterationTime(s); });
}

/// A reducer of 1000 parameters of one element, with `each` of them in a bucket; an iteration is one parameter.
struct reducing {
  static constexpr std::size_t parameters = 1000;
  world& on;
  tutti::grad::reducer<world> reducer;

  reducing(world& with, std::size_t each)
      : on(with),
        reducer(with, std::vector<tutti::grad::parameter_shape>(parameters, {"", 1}),
                {{.first_bytes = each * 64, .cap_bytes = each * 64}}) {}  // each parameter occupies a cache line
  void pass() {
    auto begun = reducer.begin();
    for (std::size_t i = parameters; i-- > 0;) begun.ready(i);
    tutti::sync_wait(on, begun.finish());
  }
};
void reducer_parameter(benchmark::State& state) {
  world on = world_of_one();
  reducing all(on, static_cast<std::size_t>(state.range(0)));
  while (state.KeepRunningBatch(reducing::parameters)) all.pass();
}
void reducer_parameter_between_two_threads(benchmark::State& state) {
  const auto hub = std::make_shared<tutti::threads_hub>(2);
  const auto rounds = [&](int rank, auto more, auto timed) {
    world on = tutti::join(hub, rank);
    reducing all(on, static_cast<std::size_t>(state.range(0)));
    std::vector<int> again{0};
    for (;;) {
      again[0] = more();
      on.broadcast(again, 0).wait();
      if (again[0] == 0) break;
      const auto start = clock_type::now();
      all.pass();
      timed(seconds_since(start));
    }
  };
  std::jthread other([&] { rounds(1, [] { return 0; }, [](double) {}); });
  rounds(
      0, [&] { return state.KeepRunningBatch(reducing::parameters) ? 1 : 0; },
      [&](double s) { state.SetIterationTime(s); });
}

}  // namespace

BENCHMARK(issue_and_wait<all_reduce>);
BENCHMARK(issue_and_wait<barrier>);
BENCHMARK(issue_and_wait<prepared_all_reduce>);
BENCHMARK(issue_alone<all_reduce>)->UseManualTime();
BENCHMARK(issue_alone<barrier>)->UseManualTime();
BENCHMARK(issue_alone<prepared_all_reduce>)->UseManualTime();
BENCHMARK(co_await_of_a_ready_op)->UseManualTime();
BENCHMARK(wait_for_a_ready_op)->UseManualTime();
BENCHMARK(between_two_threads)->UseManualTime();
BENCHMARK(reducer_parameter)->ArgName("per_bucket")->Arg(1000)->Arg(20);
BENCHMARK(reducer_parameter_between_two_threads)->ArgName("per_bucket")->Arg(1000)->UseManualTime();
BENCHMARK_MAIN();
