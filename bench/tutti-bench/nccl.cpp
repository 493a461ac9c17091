#include "nccl.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>

#include "collective.hpp"
#include "gpu/timed_event.hpp"

namespace bench {
namespace {

using gpu_communicator = tutti::communicator<tutti::nccl>;
using flight = tutti::nccl::op_type;

/// One collective on elements of T, in buffers for the largest size.
template <class T>
class on_gpus {
 public:
  on_gpus(communicator& world, gpu_communicator& gpus, const options& o)
      : world_(world),
        gpus_(gpus),
        o_(o),
        what_(collective_of(o.collective)),
        how_{.via = tutti::algorithm_of(o.algorithm), .stream = {}},
        stream_(gpus.backend().device()),
        in_(gpus.backend().device(), most()),
        out_(gpus.backend().device(), most()) {
    how_.stream = stream_;
  }

  [[nodiscard]] timing measure(std::size_t all, bool in_place) {
    std::uint64_t wrong = 0;
    for (int k = 0; k < o_.checks; ++k) wrong += checked(all, in_place);
    check(cudaMemset(in_.span().data(), 0, in_.span().size_bytes()), "cudaMemset");
    check(cudaMemset(out_.span().data(), 0, out_.span().size_bytes()), "cudaMemset");
    timing t = o_.graphs > 0 ? time_graph(all, in_place) : time_rounds(all, in_place);
    t.us = world_.all_reduce(t.us, tutti::mean).wait();
    t.wrong = world_.all_reduce(wrong).wait();
    return t;
  }

 private:
  using span = tutti::cuda::device_span<T>;

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(gpus_.size()); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(gpus_.rank()); }
  /// To whom sendrecv sends, and from whom it receives.
  [[nodiscard]] int next() const { return (gpus_.rank() + 1) % gpus_.size(); }
  [[nodiscard]] int previous() const { return (gpus_.rank() + gpus_.size() - 1) % gpus_.size(); }
  [[nodiscard]] std::size_t most() const { return std::max<std::size_t>(o_.max_bytes / sizeof(T), ranks()); }

  template <class F>
  flight with_reduction(F f) {
    if (o_.op == "prod") return f(tutti::prod);
    if (o_.op == "max") return f(tutti::max);
    if (o_.op == "min") return f(tutti::min);
    if (o_.op == "avg") return f(tutti::mean);
    return f(tutti::sum);
  }
  /// Issues it once; its handles come behind those that are there.
  void start(std::size_t all, bool in_place) {
    const span in = in_.span().first(all), out = in_place ? in : out_.span().first(all);
    if (o_.collective != "sendrecv") return flights_.push_back(start(all, in, out, in_place));
    const tutti::nccl_group together{gpus_};
    flights_.push_back(gpus_.send(in, next(), 0, how_));
    flights_.push_back(gpus_.recv(out, previous(), 0, how_));
  }
  flight start(std::size_t all, span in, span out, bool in_place) {
    const std::size_t each = all / ranks();
    const auto own = [&](span s) { return s.subspan(me() * each, each); };
    if (o_.collective == "barrier") return gpus_.barrier(how_);
    if (o_.collective == "broadcast") return gpus_.broadcast(in, o_.root, how_);
    if (o_.collective == "all_gather") return gpus_.all_gather(in_place ? own(out) : in.first(each), out, how_);
    if (o_.collective == "gather") return gpus_.gather(in_place ? own(out) : in.first(each), out, o_.root, how_);
    if (o_.collective == "scatter") return gpus_.scatter(in, in_place ? own(in) : out.first(each), o_.root, how_);
    if (o_.collective == "all_to_all") return gpus_.all_to_all(in, out, how_);
    return with_reduction([&](auto op) {
      if (o_.collective == "reduce") return gpus_.reduce(in, out, o_.root, op, how_);
      if (o_.collective == "reduce_scatter")
        return gpus_.reduce_scatter(in, in_place ? own(in) : out.first(each), op, how_);
      return in_place ? gpus_.all_reduce(in, op, how_) : gpus_.all_reduce(in, out, op, how_);
    });
  }

  /// So many as --agg_iters in one launch, then the stream comes after them.
  void round(std::size_t all, bool in_place) {
    flights_.clear();
    if (o_.aggregate == 1) {
      start(all, in_place);
    } else {
      const tutti::nccl_group together{gpus_};
      for (int i = 0; i < o_.aggregate; ++i) start(all, in_place);
    }
    for (auto& f : flights_) std::move(f).join(stream_);
  }
  void rounds(int n, std::size_t all, bool in_place) {
    for (int i = 0; i < n; ++i) round(all, in_place);
  }
  /// The host waits for the stream, with a deadline, as for any operation.
  void settle() { gpus_.barrier({.stream = stream_}).wait(); }

  timing time_rounds(std::size_t all, bool in_place) {
    rounds(o_.warmup, all, in_place);
    settle();
    world_.barrier().wait();
    const timed_event start, end;
    start.record(stream_.native());
    rounds(o_.iterations, all, in_place);
    end.record(stream_.native());
    settle();
    // Once more with a mark behind every round, which costs the stream a little.
    std::vector<timed_event> marks(static_cast<std::size_t>(o_.iterations) + 1);
    marks[0].record(stream_.native());
    for (std::size_t i = 1; i < marks.size(); ++i) {
      round(all, in_place);
      marks[i].record(stream_.native());
    }
    settle();
    std::vector<double> each;
    for (std::size_t i = 1; i < marks.size(); ++i)
      each.push_back(marks[i - 1].microseconds_to(marks[i]) / o_.aggregate);
    world_.all_reduce(each, tutti::max).wait();
    std::sort(each.begin(), each.end());
    timing t;
    t.us = start.microseconds_to(end) / (o_.iterations * o_.aggregate);
    t.p50 = each[each.size() / 2];
    t.p99 = each[each.size() * 99 / 100];
    t.most = each.back();
    return t;
  }

  timing time_graph(std::size_t all, bool in_place) {
    rounds(o_.warmup, all, in_place);
    settle();
    const captured_graph graph{stream_.native(), [&] { rounds(o_.iterations, all, in_place); }};
    graph.launch(stream_.native());
    settle();
    world_.barrier().wait();
    const timed_event start, end;
    start.record(stream_.native());
    for (int i = 0; i < o_.graphs; ++i) graph.launch(stream_.native());
    end.record(stream_.native());
    settle();
    world_.barrier().wait();  // nobody destroys a graph that a peer still runs
    timing t;
    t.us = start.microseconds_to(end) / (static_cast<double>(o_.graphs) * o_.iterations * o_.aggregate);
    t.p50 = t.p99 = t.most = t.us;
    return t;
  }

  /// Runs it once and counts what is wrong.
  std::uint64_t checked(std::size_t all, bool in_place) {
    const std::size_t each = all / ranks();
    const bool own_block = in_place && (o_.collective == "all_gather" || o_.collective == "gather");
    std::vector<T> host(all);
    for (std::size_t i = 0; i < all; ++i)
      host[i] = operand<T>(gpus_.rank(), own_block ? i - std::min(i, me() * each) : i, o_.op);
    check(cudaMemcpy(in_.span().data(), host.data(), all * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemset(out_.span().data(), 0x5a, all * sizeof(T)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    flights_.clear();
    start(all, in_place);
    for (auto& f : flights_) f.wait();
    check(cudaMemcpy(host.data(), (in_place ? in_ : out_).span().data(), all * sizeof(T), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    std::uint64_t wrong = 0;
    const auto is = [&](std::size_t first, std::size_t count, auto wanted) {
      for (std::size_t i = 0; i < count; ++i) {
        const double want = as_double(wanted(i));
        // NCCL's mean multiplies by a rounded 1/ranks.
        const double off = o_.op == "avg" ? std::abs(want) * 1e-5 : 0;
        wrong += !(std::abs(as_double(host[first + i]) - want) <= off);
      }
    };
    const std::size_t mine = me() * each, at = in_place ? mine : 0;  // of the block that each rank gets
    const auto each_from = [&](auto wanted) {
      for (std::size_t r = 0; r < ranks(); ++r) is(r * each, each, wanted(static_cast<int>(r)));
    };
    const auto from = [&](int rank, std::size_t first) {
      return [this, rank, first](std::size_t i) { return operand<T>(rank, first + i, o_.op); };
    };
    const bool here = !what_.rooted || gpus_.rank() == o_.root;  // where the result of a gather or a reduce is
    if (o_.collective == "broadcast")
      is(0, all, from(o_.root, 0));
    else if (o_.collective == "sendrecv")
      is(0, all, from(previous(), 0));
    else if (o_.collective == "scatter")
      is(at, each, from(o_.root, mine));
    else if (o_.collective == "all_to_all")
      each_from([&](int r) { return from(r, mine); });
    else if (here && o_.collective.ends_with("gather"))
      each_from([&](int r) { return from(r, 0); });
    else if (o_.collective == "reduce_scatter")
      is(at, each, [&](std::size_t i) { return expected<T>(gpus_.size(), mine + i, o_.op); });
    else if (here && what_.reduces)
      is(0, all, [&](std::size_t i) { return expected<T>(gpus_.size(), i, o_.op); });
    return wrong;
  }
  static double as_double(T x) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(x);
    else
      return static_cast<double>(static_cast<float>(x));
  }

  communicator& world_;
  gpu_communicator& gpus_;
  const options& o_;
  const collective& what_;
  tutti::issue how_;
  tutti::cuda::stream stream_;
  tutti::cuda::device_memory<T> in_, out_;
  std::vector<flight> flights_;
};

template <class T>
void sweep(communicator& world, gpu_communicator& gpus, const options& o, table& rows) {
  on_gpus<T> bench{world, gpus, o};
  if (o.collective == "barrier") {
    const timing t = bench.measure(0, true);
    if (world.rank() == 0) rows.row(world.size(), 0, 0, std::nullopt, t);
    return;
  }
  const collective& what = collective_of(o.collective);
  const auto ranks = static_cast<std::size_t>(world.size());
  for (const std::size_t asked : o.sizes()) {
    const std::size_t all = what.elements(asked, sizeof(T), ranks);
    std::optional<timing> out_of_place, in_place;
    if (what.where != placements::in_place) out_of_place = bench.measure(all, false);
    if (what.where != placements::out_of_place) in_place = bench.measure(all, true);
    if (world.rank() == 0) rows.row(world.size(), all * sizeof(T), what.count(all, ranks), out_of_place, in_place);
  }
}

std::string about(const gpu_communicator& gpus) {
  int version = 0;
  static_cast<void>(tutti::nccl_api::version(version));
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, gpus.backend().device()), "cudaGetDeviceProperties");
  return "# NCCL " + std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100) + " on " + device.name + "\n";
}

}  // namespace

void run_on_gpus(communicator& world, const options& o, table& rows) {
  if (o.collective == "sendrecv" && world.size() == 1)
    throw tutti::usage_error("sendrecv needs two ranks or more: none exchanges messages with itself");
  tutti::nccl_options how;
  if (o.shared_gpus) how.sharing = tutti::device_sharing::allowed;
  if (o.blocking_calls) how.calls = tutti::nccl_calls::blocking;
  how.timeout = world.timeout();
  auto gpus = tutti::gpu_world(world, how);
  check(cudaSetDevice(gpus.backend().device()), "cudaSetDevice");
  if (world.rank() == 0) rows.header(world.size(), about(gpus));
  const auto of = [&]<class T>(T*) { sweep<T>(world, gpus, o, rows); };
  if (o.type == "int8") return of(static_cast<std::int8_t*>(nullptr));
  if (o.type == "uint8") return of(static_cast<std::uint8_t*>(nullptr));
  if (o.type == "int32") return of(static_cast<std::int32_t*>(nullptr));
  if (o.type == "uint32") return of(static_cast<std::uint32_t*>(nullptr));
  if (o.type == "int64") return of(static_cast<std::int64_t*>(nullptr));
  if (o.type == "uint64") return of(static_cast<std::uint64_t*>(nullptr));
  if (o.type == "half") return of(static_cast<tutti::float16*>(nullptr));
  if (o.type == "bfloat16") return of(static_cast<tutti::bfloat16*>(nullptr));
  if (o.type == "double") return of(static_cast<double*>(nullptr));
  if (o.type == "f8e4m3") return of(static_cast<tutti::float8_e4m3*>(nullptr));
  if (o.type == "f8e5m2") return of(static_cast<tutti::float8_e5m2*>(nullptr));
  of(static_cast<float*>(nullptr));
}

}  // namespace bench
