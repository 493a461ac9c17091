#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include <docs/gradients.hpp>
#include <docs/hooks.hpp>
#include <docs/reproducible.hpp>
#include <support/temporary_directory.hpp>

// The code of docs/gradients.md, docs/hooks.md and docs/reproducible.md, run.

TEST_CASE("docs of gradients: micro-batches, uneven inputs and a rank that runs out of memory") {
  tutti::run_threads(3, [](docs_gradients::world_t& world) {
    tutti::grad::reducer reducer{world, docs_gradients::shapes};
    docs_gradients::model net{world.rank(), 3 + world.rank()};
    const std::vector<docs_gradients::batch_t> micro{{1, 2, 3}, {4, 5}};
    tutti::sync_wait(world, docs_gradients::micro_batches(reducer, net, micro));
    if (reducer.gradient<float>(1)[0] != 3) throw std::logic_error("the mean of all samples");
    docs_gradients::model other;
    tutti::sync_wait(world, docs_gradients::own_memory(
                                reducer, other, docs_gradients::batch_t(4, static_cast<float>(2 * world.rank()))));
    if (other.steps != 1 || other.last != 2) throw std::logic_error("the mean of gradients of own memory");
    docs_gradients::model third;
    tutti::sync_wait(world, docs_gradients::in_place(world, third, {static_cast<float>(world.rank())}));
    if (third.last != 1) throw std::logic_error("the mean of gradients in place");
    tutti::sync_wait(world, docs_gradients::until_all_have_run_out(reducer, net));
    if (net.steps != 4 || net.last != 3) throw std::logic_error("5 batches, one of which all ranks skip");
  });
}

TEST_CASE("docs of gradients: a loop follows the ready order") {
  tutti::run_threads(2, [](docs_gradients::world_t& world) {
    auto small = docs_gradients::following();
    small.limits = {1, 1};
    tutti::grad::reducer reducer{world, docs_gradients::shapes, small};
    tutti::sync_wait(world, docs_gradients::follow_the_ready_order(reducer, 3));
    if (reducer.replans() != 0) throw std::logic_error("the plan of registration");
    tutti::sync_wait(world, docs_gradients::follow_the_ready_order(reducer, 2));
    if (reducer.replans() != 1) throw std::logic_error("the ready order");
    if (reducer.gradient<float>(1)[0] != 1) throw std::logic_error("the mean");
  });
}

TEST_CASE("docs of gradients: a ready order is kept for the next run") {
  const tutti_test::temporary_directory folder;
  const auto profile = folder.file("ready_order.txt");
  tutti::run_threads(2, [&](docs_gradients::world_t& world) {
    bool rebuilt = false;
    const tutti::grad::plan seen = docs_gradients::with_profile(world, profile, rebuilt);
    if (!rebuilt) throw std::logic_error("the order of registration is another");
    if (!(docs_gradients::with_profile(world, profile, rebuilt) == seen) || rebuilt) throw std::logic_error("rebuilt");
  });
}

TEST_CASE("docs of reproducible sums: 3 ranks and 18") {
  for (const int ranks : {3, 18})
    tutti::run_threads(ranks, [](docs_reproducible::world_t& world) {
      docs_reproducible::sharded_model net;
      tutti::sync_wait(world, docs_reproducible::same_bits_on_any_number_of_ranks(
                                  world, net, std::vector<docs_reproducible::sharded_batch>(2)));
      if (net.last != 7.5f) throw std::logic_error("mean");
    });
}

TEST_CASE("docs of hooks: each gives the mean of what two ranks have, or what it promises") {
  tutti::run_threads(2, [](docs_hooks::world_t& world) {
    const auto near = [](float x, float y) { return x > y - 0.01f && x < y + 0.01f; };
    const auto [ring, plain, after, half, eighth, low, both, adaptive, own] = docs_hooks::means(world);
    const bool all = ring == 1.5f && plain == 1.5f && after == 1.5f && half == 1.5f && near(eighth, 1.5f) &&
                     near(low, 1.5f) && near(both, 1.5f) && near(own, 1.25f);
    if (!all) throw std::logic_error("a mean");
    // a (1 - 2/2) + 2a (1 - 2/8) of parallel gradients a and 2a
    if (!near(adaptive, 1.5f)) throw std::logic_error("adasum");
  });
}
