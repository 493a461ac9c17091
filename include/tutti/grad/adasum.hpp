#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::grad {

/// Combines two gradients into `a` by Adasum: a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2), which is their sum if they
/// are orthogonal and their mean if they are equal (Maleki et al., Scaling Distributed Training with Adaptive
/// Summation, 2020). A gradient whose squared norm is below 1.5e-154 is taken unscaled. Products and norms are computed
/// in double.
template <number T>
void adasum(std::span<T> a, std::span<const T> b) noexcept {
  constexpr double least = 1.4916681462400413e-154;  // the root of the smallest normal double, as in Horovod
  constexpr double most = (std::numeric_limits<double>::max)(), down = 0x1p-600;
  double product = 0, a_norm = 0, b_norm = 0, a_unit = 1, b_unit = 1;
  const auto add_up = [&](double a_by, double b_by) {
    product = a_norm = b_norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(a[i]) * a_by, y = static_cast<double>(b[i]) * b_by;
      product += x * y;
      a_norm += x * x;
      b_norm += y * y;
    }
  };
  add_up(1, 1);
  if (!(a_norm <= most && b_norm <= most)) {  // the squares of large doubles exceed their range
    if (!(a_norm <= most)) a_unit = down;
    if (!(b_norm <= most)) b_unit = down;
    add_up(a_unit, b_unit);
  }
  const double of_a = a_norm < least ? 1 : 1 - product / (2 * a_norm) * (a_unit / b_unit);
  const double of_b = b_norm < least ? 1 : 1 - product / (2 * b_norm) * (b_unit / a_unit);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = rounded<T>(of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]));
}

/// A hook that combines gradients by Adasum instead of the mean, each parameter separately, for any number of ranks and
/// any group. Weights only decide which ranks take part: a rank with weight 0 does not. Ranks combine in pairs, then
/// pairs of pairs; if their number n is not a power of two, each of the last ranks first joins one of the others. All
/// ranks get the same bits, on machines of one kind. The exchange runs in finish(), by messages with `tag`. Memory: one
/// more copy of a bucket. Cost: floor(log2(n)) exchanges of the whole bucket per rank, and two more messages if n is
/// not a power of two.
class adasum_hook {
 public:
  static constexpr scaling scale = scaling::none;
  static constexpr std::uint32_t default_tag = 0xada5;

  adasum_hook() = default;
  explicit adasum_hook(std::uint32_t tag) noexcept : tag_(tag) {}

  template <class Comm, number T>
  task<> operator()(Comm& world, bucket_view<T> b) {
    return combine(world, b, world.all_reduce(b.tail(), sum, {}, b.where));
  }

 private:
  template <class Comm, class T>
  task<> combine(Comm& world, bucket_view<T> b, op tail) {
    op last = std::move(tail);
    const auto mine = b.gradients();
    if (room_.size() < mine.size_bytes()) room_.resize(mine.size_bytes());
    const std::span<T> theirs{reinterpret_cast<T*>(room_.data()), mine.size()};
    const int n = world.size(), paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(n))), me = world.rank();
    if (me >= paired) {
      co_await world.send(mine, me - paired, tag_, {}, b.where);
      co_await world.recv(mine, me - paired, tag_, {}, b.where);
    } else {
      if (me + paired < n) {
        co_await world.recv(theirs, me + paired, tag_, {}, b.where);
        each(b, mine, theirs);
      }
      for (int distance = 1; distance < paired; distance *= 2) {
        const int peer = me ^ distance;
        op out = world.send(mine, peer, tag_, {}, b.where);
        co_await world.recv(theirs, peer, tag_, {}, b.where);
        co_await std::move(out);
        // The same order on both: the lower ranks' gradient first.
        if (peer < me) std::swap_ranges(mine.begin(), mine.end(), theirs.begin());
        each(b, mine, theirs);
      }
      if (me + paired < n) co_await world.send(mine, me + paired, tag_, {}, b.where);
    }
    co_await std::move(last);
  }

  template <class T>
  static void each(const bucket_view<T>& b, std::span<T> mine, std::span<T> theirs) noexcept {
    for (const bucket_slot& s : b.slots)
      adasum(mine.subspan(s.offset, s.count), std::span<const T>{theirs.subspan(s.offset, s.count)});
  }

  std::uint32_t tag_ = default_tag;
  std::vector<std::byte> room_;
};

}  // namespace tutti::grad
