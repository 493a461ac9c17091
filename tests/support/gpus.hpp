#pragma once
#include <barrier>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/fakes/fake_nccl.hpp>
#include <tutti/bootstrap/nccl/make.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/stream.hpp>

using gpus = tutti::communicator<tutti::basic_nccl<fake::nccl>>;
using fake_stream = tutti::cuda::basic_stream<fake::cuda>;

/// Runs f(devices, world) as each of n ranks, threads whose devices are those of the fake machine, once all have come
/// up: one that aborts before would keep the others from it. `Nccl` is the fake, or something on top of it.
template <class Nccl = fake::nccl, class F>
void run_gpus(int n, F f, tutti::nccl_options how = {}) {
  std::barrier up{n};
  tutti::run_threads(n, [&](tutti::communicator<tutti::threads>& world) {
    fake::rank = world.rank();
    fake::current_device = 0;
    auto devices = [&] {
      try {
        return tutti::make_nccl<Nccl>(world, how);
      } catch (...) {
        up.arrive_and_drop();
        throw;
      }
    }();
    up.arrive_and_wait();
    f(devices, world);
  });
}

/// What the fake's devices have for memory.
template <class T>
tutti::cuda::device_span<T> on_device(std::vector<T>& v) {
  return {v.data(), v.size()};
}

/// The words of the error that `f` throws; its code goes to `kind`.
template <class F>
std::string words_of(F f, tutti::errc& kind) {
  try {
    f();
  } catch (const tutti::error& e) {
    kind = e.kind();
    return e.what();
  }
  kind = tutti::errc::ok;
  return {};
}
