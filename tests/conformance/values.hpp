#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// The largest value and who has it; the lowest rank of several.
struct best {
  double value;
  std::int32_t rank;
  std::int32_t unused;
  friend bool operator==(const best&, const best&) = default;
};
struct better {
  best operator()(const best& a, const best& b) const {
    return b.value > a.value || (b.value == a.value && b.rank < a.rank) ? b : a;
  }
};

/// As large as what travels by value may be.
struct eight {
  std::int64_t words[8];
  friend bool operator==(const eight&, const eight&) = default;
};

template <class T, class World, class Op>
void check_scalar(session<World>& s, Op with) {
  if constexpr (tutti::reduction_for<Op, T>) {
    which c = s.name("all_reduce", 1, type_name<T>());
    c.note = std::string(tutti::name(Op::kind)) + ", by value";
    const std::uint64_t salt = s.salt();
    const T got = s.world.all_reduce(operand<T>(Op::kind, s.world.rank(), 0, salt), with).wait();
    const T wanted = reduced<T>(Op::kind, s.world.size(), 0, salt);
    expect(got == wanted, c, to_text(got) + " instead of " + to_text(wanted));
  }
}

template <class World>
void check_callables(session<World>& s, std::size_t count) {
  using enum tutti::algorithm;
  const int rank = s.world.rank(), size = s.world.size();
  for (const auto via : s.template algorithms<tutti::all_reduce_args>(
           {automatic, direct, ring, recursive_doubling, halving_doubling, hierarchical}, sizeof(best))) {
    which c = s.name("all_reduce", count, "best", via);
    const std::uint64_t salt = s.salt();
    const auto value = [&](int r, std::size_t i) {
      return best{static_cast<double>(mix(salt + i) % 64 + static_cast<std::uint64_t>((r * 5 + 3) % size)), r, 0};
    };
    std::vector<best> v(count);
    for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, i);
    s.world.all_reduce(v, better{}, {.via = via}).wait();
    expect_equal(c, std::span{v}, [&](std::size_t i) {
      best wanted = value(0, i);
      for (int r = 1; r < size; ++r) wanted = better{}(wanted, value(r, i));
      return wanted;
    });

    c = s.name("all_reduce", count, type_name<std::uint32_t>(), via);
    c.note = "a lambda with captures";
    const auto modulus = static_cast<std::uint32_t>(1000000 + size), twist = static_cast<std::uint32_t>(size);
    const auto add = [modulus, twist](std::uint32_t a, std::uint32_t b) { return (a + b + twist) % modulus; };
    std::vector<std::uint32_t> sums(count);
    for (std::size_t i = 0; i < count; ++i)
      sums[i] = static_cast<std::uint32_t>(i % 1000) + static_cast<std::uint32_t>(rank) * 999999;
    std::vector<std::uint32_t> out(count);
    s.world.all_reduce(sums, out, add, {.via = via}).wait();
    expect_equal(c, std::span{out}, [&](std::size_t i) {
      auto wanted = static_cast<std::uint32_t>(i % 1000);
      for (int r = 1; r < size; ++r)
        wanted = add(wanted, static_cast<std::uint32_t>(i % 1000) + static_cast<std::uint32_t>(r) * 999999);
      return wanted;
    });
  }
}

template <class World>
void check_values(session<World>& s) {
  const int rank = s.world.rank(), size = s.world.size();
  check_scalar<double>(s, tutti::max);
  check_scalar<float>(s, tutti::mean);
  check_scalar<unsigned long>(s, tutti::bxor);
  for_each(every_number{}, [&]<class T>() {
    check_scalar<T>(s, tutti::sum);
    which c = s.name("broadcast", 1, type_name<T>());
    c.note = "by value";
    const int root = static_cast<int>(s.salt() % s.size());
    const T got = s.world.broadcast(from_int<T>(rank + 1), root).wait();
    expect(got == from_int<T>(root + 1), c, "got " + to_text(got));
  });
  for (int root = 0; root < size; ++root) {
    eight e{};
    for (int w = 0; w < 8; ++w) e.words[w] = rank * 100 + w;
    const eight got = s.world.broadcast(e, root).wait();
    for (int w = 0; w < 8; ++w)
      expect(got.words[w] == root * 100 + w, s.name("broadcast", 1, "struct of 64 bytes"), "another value");
  }
  const best winner =
      s.world.all_reduce(best{static_cast<double>((rank * 3 + 1) % (size + 2)), rank, 0}, better{}).wait();
  best wanted{1, 0, 0};
  for (int r = 1; r < size; ++r) wanted = better{}(wanted, best{static_cast<double>((r * 3 + 1) % (size + 2)), r, 0});
  expect(winner == wanted, s.name("all_reduce", 1, "best"), "rank " + std::to_string(winner.rank) + " won");
  for (const std::size_t count : s.counts({0, 1, 7, 1000, 30000})) check_callables(s, count);
}

}  // namespace conformance
