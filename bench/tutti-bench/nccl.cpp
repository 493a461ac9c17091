#include "nccl.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>

#include "exercise.hpp"
#include "gpu/timed_event.hpp"

namespace bench {
namespace {

using gpu_communicator = tutti::communicator<tutti::nccl>;
using flight = tutti::nccl::op_type;

/// A collective on elements of T, with buffers for the largest size.
template <class T>
class on_gpus {
 public:
  on_gpus(communicator& world, gpu_communicator& gpus, const options& o)
      : world_(world),
        gpus_(gpus),
        o_(o),
        what_(o, gpus.rank(), gpus.size(), 1e-5),  // NCCL's mean multiplies by a rounded 1/ranks
        how_{.via = tutti::algorithm_of(o.algorithm), .stream = {}},
        stream_(gpus.backend().device()),
        in_(gpus.backend().device(), what_.most()),
        out_(gpus.backend().device(), what_.most()) {
    how_.stream = stream_;
  }

  [[nodiscard]] timing measure(std::size_t all, placements where) {
    std::uint64_t wrong = 0;
    for (int k = 0; k < o_.checks; ++k) wrong += checked(all, where);
    check(cudaMemset(in_.span().data(), 0, in_.span().size_bytes()), "cudaMemset");
    check(cudaMemset(out_.span().data(), 0, out_.span().size_bytes()), "cudaMemset");
    timing t = o_.graphs > 0 ? time_graph(all, where) : time_rounds(all, where);
    t.us = world_.all_reduce(t.us, tutti::mean).wait();
    t.wrong = world_.all_reduce(wrong).wait();
    return t;
  }

 private:
  /// Issues the collective once and appends its handles to the existing ones.
  void start(std::size_t all, placements where) {
    const auto begin = [&] {
      what_.begin(gpus_, how_, in_.span().first(all), out_.span().first(all), where,
                  [&](flight f) { flights_.push_back(std::move(f)); });
    };
    if (o_.collective != "sendrecv") return begin();
    const tutti::nccl_group together{gpus_};
    begin();
  }

  /// Issues --agg_iters operations in one launch, and makes the stream wait for them.
  void round(std::size_t all, placements where) {
    flights_.clear();
    if (o_.aggregate == 1) {
      start(all, where);
    } else {
      const tutti::nccl_group together{gpus_};
      for (int i = 0; i < o_.aggregate; ++i) start(all, where);
    }
    for (auto& f : flights_) std::move(f).join(stream_);
  }
  void rounds(int n, std::size_t all, placements where) {
    for (int i = 0; i < n; ++i) round(all, where);
  }
  /// Waits on the host for the stream, with the deadline of an operation.
  void settle() { gpus_.barrier({.stream = stream_}).wait(); }

  timing time_rounds(std::size_t all, placements where) {
    rounds(o_.warmup, all, where);
    settle();
    world_.barrier().wait();
    const timed_event start, end;
    start.record(stream_.native());
    rounds(o_.iterations, all, where);
    end.record(stream_.native());
    settle();
    // Runs again with an event after every round, which costs a little time.
    std::vector<timed_event> marks(static_cast<std::size_t>(o_.iterations) + 1);
    marks[0].record(stream_.native());
    for (std::size_t i = 1; i < marks.size(); ++i) {
      round(all, where);
      marks[i].record(stream_.native());
    }
    settle();
    std::vector<double> each;
    for (std::size_t i = 1; i < marks.size(); ++i)
      each.push_back(marks[i - 1].microseconds_to(marks[i]) / o_.aggregate);
    world_.all_reduce(each, tutti::max).wait();
    timing t;
    t.us = start.microseconds_to(end) / (o_.iterations * o_.aggregate);
    t.tell(std::move(each));
    return t;
  }

  timing time_graph(std::size_t all, placements where) {
    rounds(o_.warmup, all, where);
    settle();
    const captured_graph graph{stream_.native(), [&] { rounds(o_.iterations, all, where); }};
    graph.launch(stream_.native());
    settle();
    world_.barrier().wait();
    const timed_event start, end;
    start.record(stream_.native());
    for (int i = 0; i < o_.graphs; ++i) graph.launch(stream_.native());
    end.record(stream_.native());
    settle();
    world_.barrier().wait();  // no rank destroys its graph while a peer runs its own
    timing t;
    t.us = start.microseconds_to(end) / (static_cast<double>(o_.graphs) * o_.iterations * o_.aggregate);
    t.p50 = t.p99 = t.most = t.us;
    return t;
  }

  /// Runs the collective once and returns the number of wrong elements.
  std::uint64_t checked(std::size_t all, placements where) {
    std::vector<T> host(all);
    what_.fill(host, where);
    check(cudaMemcpy(in_.span().data(), host.data(), all * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemset(out_.span().data(), 0x5a, all * sizeof(T)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    flights_.clear();
    start(all, where);
    for (auto& f : flights_) f.wait();
    const auto& result = where == placements::in_place ? in_ : out_;
    check(cudaMemcpy(host.data(), result.span().data(), all * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return what_.wrong(host, where);
  }

  communicator& world_;
  gpu_communicator& gpus_;
  const options& o_;
  exercise<T> what_;
  tutti::call_options how_;
  tutti::cuda::stream stream_;
  tutti::cuda::device_memory<T> in_, out_;
  std::vector<flight> flights_;
};

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
  tutti::nccl_options how;
  if (o.shared_gpus) how.sharing = tutti::device_sharing::allowed;
  if (o.blocking_calls) how.calls = tutti::nccl_calls::blocking;
  how.timeout = world.timeout();
  auto gpus = tutti::gpu_world(world, how);
  check(cudaSetDevice(gpus.backend().device()), "cudaSetDevice");
  if (world.rank() == 0) rows.header(world.size(), about(gpus));
  with_type(o.type, [&]<class T>(const T*) {
    on_gpus<T> bench{world, gpus, o};
    sweep<T>(world, o, rows, [&](std::size_t all, placements where) { return bench.measure(all, where); });
  });
}

}  // namespace bench
