// A user's program that instantiates much of the library, for what compilers say about it (tests/compilers/run.py).
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if defined(WITH_MACROS_OF_OTHERS)  // the standard library's headers are not ours to mend: those that we use come
                                    // before
#include <standard_headers>
#define I (__extension__ 1.0iF)
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define Always 2
#define Bool int
#define False 0
#define None 0L
#define Status int
#define Success 0
#define True 1
#define major(device) ((device) >> 8)
#define minor(device) ((device) & 0xff)
#define small char
#endif

#include <tutti/grad/adasum.hpp>
#include <tutti/grad/broadcast_parameters.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/grad/reproducible.hpp>
#include <tutti/train/batch_norm.hpp>
#include <tutti/train/batch_split.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/local_sgd.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/metrics/confusion_matrix.hpp>
#include <tutti/train/metrics/histogram.hpp>
#include <tutti/train/metrics/metric.hpp>
#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <tutti/train/metrics/weighted_mean.hpp>
#include <tutti/train/random.hpp>
#include <tutti/train/rank0_stream.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <tutti/train/sharded_optimizer.hpp>
#include <tutti/train/sharded_parameters.hpp>
#include <tutti/tutti.hpp>

namespace {

struct candidate {
  double gain;
  std::int64_t at;
};

template <class World>
void collectives(World& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto rank = static_cast<std::size_t>(world.rank());
  std::vector<float> v(12, 1), all(12 * ranks);
  world.all_reduce(v).wait();
  world.all_reduce(v, tutti::mean).wait();
  world.all_reduce(v, tutti::mean_over(2.0)).wait();
  world.all_reduce(v, [](float a, float b) { return a < b ? b : a; }).wait();
  world.reduce(v, 0).wait();
  world.broadcast(v, 0).wait();
  world.scan(v).wait();
  world.exclusive_scan(v, v).wait();
  world.all_gather(v, all).wait();
  world.reduce_scatter(all, v).wait();
  world.gather(v, all, 0).wait();
  world.scatter(all, v, 0).wait();
  std::vector<float> from(all);
  world.all_to_all(from, all).wait();
  const std::vector<std::size_t> counts(ranks, 12);
  world.all_gather_v(v, all, counts).wait();
  world.reduce_scatter_v(all, v, counts).wait();
  world.gather_v(v, all, counts, 0).wait();
  world.scatter_v(all, v, counts, 0).wait();
  world.all_to_all_v(from, counts, all, counts).wait();
  const double sum = world.all_reduce(1.5).wait();
  const candidate best =
      world.all_reduce(candidate{sum, 1}, [](candidate a, candidate b) { return a.gain < b.gain ? b : a; }).wait();
  const auto worst = world.all_reduce(tutti::value_at<double>{best.gain, world.rank()}, tutti::maxloc).wait();
  auto mapped = world.template allocate<tutti::bfloat16>(64);
  auto prepared = world.prepare().all_reduce(mapped, tutti::sum);
  prepared.start().wait();
  if (ranks > 1) {
    auto sent = world.send(v, static_cast<int>((rank + 1) % ranks), 3);
    world.recv(v, static_cast<int>((rank + ranks - 1) % ranks), 3).wait();
    sent.wait();
  }
  auto half = world.split(static_cast<int>(rank % 2), static_cast<int>(worst.index));
  half.barrier().wait();
}

template <class World>
tutti::task<> awaited(World& world) {
  std::vector<int> a(3, 1), b(5, 2);
  co_await world.all_reduce(a);
  co_await tutti::when_all(std::tuple{world.all_reduce(a), world.broadcast(b, 0)});
  co_await tutti::resume_on(world.engine());
}

template <class World, class... Hook>
void reduce(World& world, Hook... hook) {
  const std::vector<tutti::grad::parameter_shape> shapes{{"w", 64 * 8, tutti::dtype::f32, 64}, {"b", 8}};
  tutti::grad::reducer reducer{world, shapes, tutti::grad::reducer_options{}, std::move(hook)...};
  auto pass = reducer.begin(2.0);
  for (std::size_t i = 2; i-- > 0;) {
    const auto g = reducer.template gradient<float>(i);
    std::fill(g.begin(), g.end(), 1.0f);
    pass.ready(i);
  }
  tutti::sync_wait(world, pass.finish());
  tutti::train::scale_gradients(reducer, tutti::train::clip_factor(tutti::train::measure(reducer).norm(), 1.0));
}

template <class World>
tutti::task<> trainers(World& world) {
  std::vector<float> x(12, 1), y(12), weight(2, 1), bias(2), parameters(16, 1);
  tutti::train::batch_norm norm{world, 2};
  co_await norm.template forward<float>(x, y, 3, weight, bias);
  tutti::train::sharded_optimizer optimizer{world, std::span{parameters}, tutti::train::adamw{.rate = 1e-3}};
  optimizer.begin();
  co_await optimizer.reduce(std::span{parameters}, 0);
  co_await optimizer.step();
  const std::vector<std::size_t> units{12, 4};
  auto p = tutti::train::shard_parameters<float>(world, units, tutti::train::sgd{.rate = 1e-3});
  p.assign(0, x);
  p.assign(1, std::span{x}.first(4));
  p.begin();
  for (std::size_t u = 0; u < 2; ++u) {
    co_await p.gather(u);
    p.release(u);
  }
  for (std::size_t u = 2; u-- > 0;) {
    co_await p.gather(u);
    std::fill(p.gradients(u).begin(), p.gradients(u).end(), 1.0f);
    p.release(u);
    co_await p.scatter(u);
  }
  co_await p.step();
  tutti::train::weighted_mean loss;
  tutti::train::top_k_accuracy<1> accuracy;
  tutti::train::histogram lengths{0, 10, 5};
  tutti::train::confusion_matrix confusion{3};
  loss.add(1.5, 2);
  lengths.add(3);
  co_await tutti::train::combine(world, loss, accuracy, lengths, confusion);
}

template <class World>
void data(World& world, const std::string& folder) {
  auto samples = tutti::train::sampler::exact(100, world);
  static_cast<void>(samples.take(8));
  std::ostringstream text;
  tutti::train::rank0_stream out{world, text};
  out << tutti::train::seed{42}.rank(world).value() << std::endl;
  std::vector<float> weight(8, 1);
  std::vector tensors{tutti::train::tensor("w", std::span{weight}, {2, 4})};
  tutti::train::save_checkpoint(world, folder + "/w.safetensors", tensors);
  static_cast<void>(tutti::train::load_checkpoint(world, folder + "/w.safetensors", tensors));
  const auto first = weight.size() * static_cast<std::size_t>(world.rank());
  const auto total = weight.size() * static_cast<std::size_t>(world.size());
  std::vector shards{tutti::train::shard("w", std::span{weight}, first, total)};
  tutti::train::save_sharded(world, folder + "/shards", shards);
  static_cast<void>(tutti::train::load_sharded(world, folder + "/shards", shards));
}

template <class World>
void everything(World& world, const std::string& folder) {
  collectives(world);
  tutti::sync_wait(world, awaited(world));
  reduce(world);
  reduce(world, tutti::grad::mean_hook{});
  reduce(world, tutti::grad::compress_hook<tutti::bfloat16>{});
  reduce(world, tutti::grad::quantize_hook{});
  reduce(world, tutti::grad::powersgd_hook{});
  reduce(world, tutti::grad::adasum_hook{});
  tutti::sync_wait(world, trainers(world));
  data(world, folder);
}

}  // namespace

int main() {
  const std::string folder = std::filesystem::temp_directory_path() / ("tutti_compilers_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  auto world = tutti::init();
  {
    tutti::progress_thread helper{world.engine()};
  }
  everything(world, folder);
  tutti::run_threads(2, [](tutti::communicator<tutti::threads>& each) { reduce(each); });
  std::filesystem::remove_all(folder);
  std::puts("everything ran");
}
