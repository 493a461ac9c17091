#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/adasum.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/grad/reproducible.hpp>
#include <vector>

#include <support/docs_examples.hpp>
#include <support/temporary_directory.hpp>

// The examples of docs/gradients.md and docs/hooks.md, compiled and run. Every block of code there, but for the first
// of each reducer's life, must stand here, but for white space.

namespace {
using world_t = tutti::communicator<tutti::threads>;
using batch_t = std::vector<float>;
const std::vector<tutti::grad::parameter_shape> shapes{{"w", 64 * 64, tutti::dtype::f32, 64}, {"b", 8}};

double samples(const batch_t& batch) { return static_cast<double>(batch.size()); }

/// Its gradients are the sum or the mean of the samples.
struct model {
  int rank = 0;
  int batches = 0;
  int steps = 0;
  float last = 0;

  batch_t next() {
    if (batches-- <= 0) return {};
    return batch_t(2, 3.0f);
  }
  template <class Ready>
  void backward(const batch_t& batch, std::vector<std::span<float>> gradients, Ready ready) {
    if (rank == 1 && batches == 1) throw std::bad_alloc();
    for (std::size_t i = gradients.size(); i-- > 0;) {
      std::fill(gradients[i].begin(), gradients[i].end(), batch[0]);
      ready(i);
    }
  }
  template <class Ready>
  void accumulate(const batch_t& batch, std::vector<std::span<float>> gradients, Ready ready) const {
    for (std::size_t i = gradients.size(); i-- > 0;) {
      for (float& x : gradients[i])
        for (const float sample : batch) x += sample;
      ready(i);
    }
  }
  void step(std::vector<std::span<float>> gradients) {
    ++steps;
    last = gradients[0][0];
  }
};

tutti::task<> micro_batches(tutti::grad::reducer<world_t>& reducer, model& net, const std::vector<batch_t>& micro) {
  for (auto g : reducer.gradients()) std::fill(g.begin(), g.end(), 0.0f);
  for (std::size_t k = 0; k + 1 < micro.size(); ++k) {
    auto part = reducer.begin(tutti::grad::accumulate, samples(micro[k]));
    net.accumulate(micro[k], reducer.gradients(), [&](std::size_t i) { part.ready(i); });
    co_await part.finish();
  }
  auto pass = reducer.begin(samples(micro.back()), tutti::grad::contribution::sum);
  net.accumulate(micro.back(), reducer.gradients(), [&](std::size_t i) { pass.ready(i); });
  co_await pass.finish();
}

tutti::task<> own_memory(tutti::grad::reducer<world_t>& reducer, model& net, const batch_t& batch) {
  std::vector<std::vector<float>> memory{std::vector<float>(64 * 64), std::vector<float>(8)};
  const std::vector<std::span<float>> own{memory[0], memory[1]};
  auto pass = reducer.begin(samples(batch));
  net.backward(batch, own, [&](std::size_t i) { pass.ready(i, own[i]); });  // stays as it is until finish() has ended
  co_await pass.finish();
  net.step(reducer.gradients());
}

tutti::task<> until_all_have_run_out(tutti::grad::reducer<world_t>& reducer, model& net) {
  for (;;) {
    const auto batch = net.next();  // empty when this rank has no more
    auto pass = reducer.begin(samples(batch));
    try {
      if (!batch.empty()) net.backward(batch, reducer.gradients(), [&](std::size_t i) { pass.ready(i); });
      pass.rest_unused();
    } catch (const std::bad_alloc&) {
      pass.skip(tutti::grad::step::skip_failure);
    }
    const auto step = co_await pass.finish();  // the same on all ranks
    if (reducer.total_weight() == 0) break;
    if (step == tutti::grad::step::apply) net.step(reducer.gradients());
  }
}

tutti::task<> follow_the_arrival(tutti::grad::reducer<world_t>& reducer, int steps) {
  for (int step = 1; step <= steps; ++step) {
    const auto views = reducer.gradients();
    auto pass = reducer.begin();
    for (std::size_t i = 0; i < 2; ++i) {  // not the reverse of registration
      std::fill(views[i].begin(), views[i].end(), 1.0f);
      pass.ready(i);
    }
    co_await pass.finish();
  }
}

struct sharded_batch {
  [[nodiscard]] double samples(tutti::grad::number_range shards) const {
    return 2 * static_cast<double>(shards.size());
  }
  [[nodiscard]] batch_t shard(std::size_t s) const { return batch_t(2, static_cast<float>(s)); }
};
/// Its gradients are sums, as accumulate() from zero.
struct sharded_model {
  float last = 0;
  template <class Ready>
  void backward(const batch_t& batch, std::vector<std::span<float>> gradients, Ready ready) const {
    for (auto g : gradients) std::fill(g.begin(), g.end(), 0.0f);
    model{}.accumulate(batch, gradients, ready);
  }
  void step(std::vector<std::span<float>> gradients) { last = gradients[0][0]; }
};
tutti::task<> same_bits_on_any_number_of_ranks(world_t& world, sharded_model& net,
                                               const std::vector<sharded_batch>& batches) {
  tutti::grad::reducer reducer{world, shapes, {}, tutti::grad::reproducible_hook{world, 16}};  // shards of a batch
  const auto mine = reducer.hook().shards();  // of this rank: [first, end)
  for (const auto& batch : batches) {
    auto pass = reducer.begin(batch.samples(mine), tutti::grad::contribution::sum);
    for (std::size_t s = mine.first; s < mine.end; ++s) {
      const bool last = s + 1 == mine.end;
      net.backward(batch.shard(s), reducer.gradients(), [&](std::size_t i) {  // overwrites them
        if (last) pass.ready(i);
      });
      if (!last) reducer.hook().keep(reducer);
    }
    pass.rest_unused();  // of a rank without shards
    co_await pass.finish();
    net.step(reducer.gradients());
  }
}

struct clipped_sum {
  float most;
  template <class Comm, class T>
  tutti::op operator()(Comm& world, tutti::grad::bucket_view<T> bucket) const {
    for (T& x : bucket.gradients()) x = std::clamp(x, T(-most), T(most));
    return world.all_reduce(bucket.elements);
  }
};

template <class Reducer>
float mean_of_ranks(world_t& world, Reducer& r) {
  auto pass = r.begin();
  for (std::size_t i = 2; i-- > 0;) {
    const auto g = r.template gradient<float>(i);
    std::fill(g.begin(), g.end(), static_cast<float>(world.rank() + 1));
    pass.ready(i);
  }
  tutti::sync_wait(world, pass.finish());
  return r.template gradient<float>(0)[5];
}

}  // namespace

TEST_CASE("docs of gradients and hooks: the examples stand in this file") {
  const std::filesystem::path root = TUTTI_SOURCE_DIR;
  const std::string code = docs_examples::without_space(docs_examples::text_of(root / "tests/grad/docs_test.cpp"));
  int examples = 0;
  for (const char* page : {"docs/gradients.md", "docs/hooks.md", "docs/reproducible.md"}) {
    for (const std::string& example : docs_examples::of(root / page)) {
      if (example.find("train(tutti::communicator<>&") != std::string::npos) continue;  // examples/04_gradients.cpp
      CHECK_MESSAGE(code.find(docs_examples::without_space(example)) != std::string::npos, page << ":\n" << example);
      ++examples;
    }
  }
  CHECK(examples >= 4);
}

TEST_CASE("docs of gradients: micro-batches, uneven inputs and a rank that runs out of memory") {
  tutti::run_threads(3, [](world_t& world) {
    tutti::grad::reducer reducer{world, shapes};
    model net{world.rank(), 3 + world.rank()};
    const std::vector<batch_t> micro{{1, 2, 3}, {4, 5}};
    tutti::sync_wait(world, micro_batches(reducer, net, micro));
    if (reducer.gradient<float>(1)[0] != 3) throw std::logic_error("the mean of all samples");
    model other;
    tutti::sync_wait(world, own_memory(reducer, other, batch_t(4, static_cast<float>(2 * world.rank()))));
    if (other.steps != 1 || other.last != 2) throw std::logic_error("the mean of gradients of own memory");
    tutti::sync_wait(world, until_all_have_run_out(reducer, net));
    if (net.steps != 4 || net.last != 3) throw std::logic_error("5 batches, one of which all ranks skip");
  });
}

TEST_CASE("docs of gradients: a loop follows the order of arrival") {
  tutti::run_threads(2, [](world_t& world) {
    const tutti::grad::reducer_options follow{.replan = tutti::grad::replan::on_drift, .drift_passes = 3};
    auto small = follow;
    small.limits = {1, 1};
    tutti::grad::reducer reducer{world, shapes, small};
    tutti::sync_wait(world, follow_the_arrival(reducer, 3));
    if (reducer.replans() != 0) throw std::logic_error("the plan of registration");
    tutti::sync_wait(world, follow_the_arrival(reducer, 2));
    if (reducer.replans() != 1) throw std::logic_error("the order of arrival");
    if (reducer.gradient<float>(1)[0] != 1) throw std::logic_error("the mean");
  });
}

TEST_CASE("docs of gradients: an order of arrival is kept for the next run") {
  const tutti_test::temporary_directory folder;
  const auto profile = folder.file("arrival.txt");
  tutti::run_threads(2, [&](world_t& world) {
    tutti::grad::plan seen;
    for (int run = 0; run < 2; ++run) {
      std::ifstream in(profile);
      const std::vector<int> order{std::istream_iterator<int>(in), {}};  // empty where there is none
      tutti::grad::reducer reducer{world, shapes, {.arrival = order}};
      if (run == 1 && !(reducer.layout() == seen)) throw std::logic_error("another plan");
      auto pass = reducer.begin();
      for (std::size_t i = 0; i < 2; ++i) pass.ready(i);  // not the reverse of registration
      tutti::sync_wait(world, pass.finish());
      if (tutti::sync_wait(world, reducer.rebuild()) != (run == 0)) throw std::logic_error("rebuilt");
      seen = reducer.layout();
      if (world.rank() == 0) {
        std::ofstream out(profile);  // on one rank
        for (const int parameter : reducer.arrival()) out << parameter << '\n';
      }
      world.barrier().wait();
    }
  });
}

TEST_CASE("docs of reproducible sums: 3 ranks and 18") {
  for (const int ranks : {3, 18})
    tutti::run_threads(ranks, [](world_t& world) {
      sharded_model net;
      tutti::sync_wait(world, same_bits_on_any_number_of_ranks(world, net, std::vector<sharded_batch>(2)));
      if (net.last != 7.5f) throw std::logic_error("mean");
    });
}

TEST_CASE("docs of hooks: each gives the mean of what two ranks have, or what it promises") {
  tutti::run_threads(2, [](world_t& world) {
    tutti::grad::reducer ring{world, shapes, {}, tutti::grad::sum_hook{{.via = tutti::algorithm::ring}}};
    tutti::grad::reducer plain{world, shapes, {}, tutti::grad::mean_hook{}};
    tutti::grad::reducer after{world, shapes, {}, tutti::grad::divide_after_hook{}};
    tutti::grad::reducer half{world, shapes, {}, tutti::grad::compress_hook<tutti::bfloat16>{}};
    tutti::grad::reducer eighth{world, shapes, {}, tutti::grad::quantize_hook{}};
    tutti::grad::reducer low{world, shapes, {}, tutti::grad::powersgd_hook{{.rank = 4, .start_pass = 10}}};
    tutti::grad::reducer both{
        world, shapes, {}, tutti::grad::compress_hook<tutti::bfloat16, tutti::grad::powersgd_hook>{}};
    tutti::grad::reducer adaptive{world, shapes, {}, tutti::grad::adasum_hook{}};
    tutti::grad::reducer own{world, shapes, {}, clipped_sum{1.5f}};
    const auto near = [](float x, float y) { return x > y - 0.01f && x < y + 0.01f; };
    const bool all = mean_of_ranks(world, ring) == 1.5f && mean_of_ranks(world, plain) == 1.5f &&
                     mean_of_ranks(world, after) == 1.5f && mean_of_ranks(world, half) == 1.5f &&
                     near(mean_of_ranks(world, eighth), 1.5f) && near(mean_of_ranks(world, low), 1.5f) &&
                     near(mean_of_ranks(world, both), 1.5f) && near(mean_of_ranks(world, own), 1.25f);
    if (!all) throw std::logic_error("a mean");
    // a (1 - 2/2) + 2a (1 - 2/8) of parallel gradients a and 2a
    if (!near(mean_of_ranks(world, adaptive), 1.5f)) throw std::logic_error("adasum");
  });
}
