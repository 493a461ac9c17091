#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/pass/weight_sync.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

TUTTI_DECL weight_sync::weight_sync(scaling how, double predivide, int ranks)
    : how_(how), predivide_(predivide), ranks_(ranks) {
  if (!(predivide > 0) || predivide > (std::numeric_limits<double>::max)())
    throw usage_error("reducer: predivide is a finite number above 0");
  if (detail::takes_as_is(how) && predivide != 1)
    throw usage_error("reducer: predivide = " + std::to_string(predivide) +
                      " with a hook that takes gradients as they are; leave it 1, or use sum_hook");
}

TUTTI_DECL void weight_sync::arrange(const plan& p, launch_order order) {
  const auto wide = [](const bucket& b) { return size_of(b.type) >= sizeof(float) && b.tail_lines != 0; };
  const auto narrow = [](const bucket& b) { return b.type == dtype::f16; };
  const auto& buckets = p.buckets;
  own_collective_ = how_ == scaling::divided || order == launch_order::ready ||
                    std::any_of(buckets.begin(), buckets.end(), narrow) ||
                    std::none_of(buckets.begin(), buckets.end(), wide) ||
                    (how_ == scaling::averaged && ranks_ > weight_digits::most_averaged);
  carrier_ = static_cast<std::size_t>(std::find_if(buckets.begin(), buckets.end(), wide) - buckets.begin());
}

TUTTI_DECL void weight_sync::learn_from(const arena& memory) noexcept {
  if (own_collective_) return;
  if (memory.layout().buckets[carrier_].type == dtype::f64)
    learn_from(memory.tail<double>(carrier_));
  else
    learn_from(memory.tail<float>(carrier_));
}

TUTTI_DECL void weight_sync::learn(double total) noexcept {
  total_ = shares_ = total;
  unit_ = 1;
  // The range is checked, as a hook that changes the tail may leave any value there.
  if (detail::takes_as_is(how_) || !(total > 0 && total < 0x1p1000)) return;
  // With equal factors, the number of ranks that have one remains: the sum is rounded to a whole number of factors.
  if (how_ == scaling::divided && range_.least == range_.most && range_.most != 1) {
    common_ = range_.most;
    shares_ = static_cast<double>(static_cast<std::int64_t>(total / common_ + 0.5));
  }
  // Gradients that need no factor are not multiplied by a unit if their sum is divided before it is rounded.
  if (sums_ == partial_sums::wide && how_ == scaling::divided && predivide_ == 1 && range_.least == range_.most &&
      divides<float16>(shares_))
    return;
  while (unit_ < shares_) unit_ *= 2;
  while (unit_ / 2 >= shares_) unit_ /= 2;
}

}  // namespace tutti::grad
