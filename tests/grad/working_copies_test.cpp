#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/grad/reproducible.hpp>
#include <tutti/grad/working_copies.hpp>
#include <utility>
#include <vector>

#include "grad/ranks.hpp"

namespace {
using ranks::expect;
using tutti::dtype;
using tutti::grad::reducer;
using world_t = ranks::communicator;

/// Counts the bytes that are allocated from it.
struct counting_world : world_t {
  explicit counting_world(world_t&& w) : world_t(std::move(w)) {}
  std::size_t bytes = 0;
  template <class T>
  tutti::mapped_array<T> allocate(std::size_t count) {
    bytes += count * sizeof(T);
    return world_t::allocate<T>(count);
  }
};

constexpr std::size_t side = 128, buckets = 12;

/// What passes of a hook allocate beside the gradients is `each` bytes for each bucket that may be under way.
template <class Make>
void check_memory(world_t& world, const char* hook, std::size_t each, const Make& make) {
  constexpr std::size_t cap = side * side * sizeof(float);
  const std::vector<tutti::grad::parameter_shape> list(buckets, {"w", side * side, dtype::f32, side});
  for (const std::size_t bound : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    counting_world group{world.split(0)};
    reducer r{group, list, {.limits = {cap, cap}, .in_flight = bound}, make(group)};
    expect(r.layout().buckets.size() == buckets && r.bytes() <= buckets * (cap + 4096), "the gradients, once");
    for (int p = 0; p < 3; ++p) {
      auto pass = r.begin(1, tutti::grad::contribution::sum);
      for (std::size_t i = buckets; i-- > 0;) pass.ready(i);
      (void)tutti::sync_wait(world, pass.finish());
    }
    const std::size_t copies = bound == 0 ? buckets : bound, more = group.bytes - r.bytes();
    expect(more == copies * each, std::string(hook) + ": " + std::to_string(more) + " bytes for " +
                                      std::to_string(copies) + " copies of " + std::to_string(each));
  }
}
}  // namespace

TEST_CASE("working_copies: what was given back is used again, the smallest that is large enough") {
  const auto all = ranks::outcomes(1, [](world_t& world) {
    counting_world w{world.split(0)};
    tutti::grad::working_copies<float> copies;
    auto a = copies.take(w, 10), b = copies.take(w, 100);
    expect(w.bytes == 440 && a.span().size() == 10 && b.span().data() != a.span().data(), "two at a time");
    const float* const small = std::exchange(a, {}).span().data();
    b = {};
    a = copies.take(w, 5);
    b = copies.take(w, 11);
    expect(w.bytes == 440 && a.span().data() == small && a.span().size() == 5 && b.span().size() == 11, "again");
    a = {};
    a = copies.take(w, 20);
    expect(w.bytes == 520 && a.span().size() == 20, "one that grows");
    a = {};
    b = {};
    copies.clear();
    expect(copies.take(w, 0).span().empty() && w.bytes == 520, "of nothing, nothing");
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}

TEST_CASE("working_copies: hooks copy as many buckets as are under way, and reducer_options::in_flight bounds them") {
  constexpr std::size_t count = side * side;
  const auto all = ranks::outcomes(2, [&](world_t& world) {
    using namespace tutti::grad;
    using tutti::bfloat16;
    check_memory(world, "compress", count * 2 + 64, [](auto&) { return compress_hook<bfloat16>{}; });
    check_memory(world, "quantize", 2 * count / 256 * sizeof(quantized_block), [](auto&) { return quantize_hook{}; });
    check_memory(world, "powersgd", 2 * side * sizeof(float), [](auto&) { return powersgd_hook{{.start_pass = 0}}; });
    check_memory(world, "reproducible", count * sizeof(float), [](auto& w) { return reproducible_hook{w, 2}; });
    check_memory(world, "both", count * 2 + 64 + 2 * side * sizeof(float),
                 [](auto&) { return compress_hook<bfloat16, powersgd_hook>{powersgd_hook{{.start_pass = 0}}}; });
  });
  for (const auto& o : all) CHECK_MESSAGE(o.fine(), o.text);
}
