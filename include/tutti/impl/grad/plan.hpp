#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

namespace detail {

[[noreturn]] inline void refuse_parameter(std::size_t index, const parameter_shape& p, const char* why) {
  throw usage_error("plan: parameter " + std::to_string(index) + " (\"" + p.name + "\") " + why);
}

/// Returns the elements from the start of a parameter's slot to the start of the next one.
inline std::size_t padded_count(std::size_t index, const parameter_shape& p) {
  if (static_cast<std::size_t>(p.type) >= dtype_count)
    refuse_parameter(index, p, "has an unknown dtype; use one of tutti::dtype");
  const std::size_t size = size_of(p.type);
  if (size == 0 || slot_alignment % size != 0)
    refuse_parameter(index, p, "has a dtype without a size that divides 64; give a dtype of numbers");
  const std::size_t line = slot_alignment / size;
  if (p.count > (std::numeric_limits<std::size_t>::max)() / size - line)
    refuse_parameter(index, p, "has more bytes than memory has addresses; check its count");
  if (p.rows == 0 || p.count % p.rows != 0) refuse_parameter(index, p, "has rows that do not divide its count");
  return (p.count + line - 1) / line * line;
}

inline void check_limits(const bucket_limits& limits) {
  const auto& each = limits.each_bytes;
  if (limits.first_bytes == 0 || limits.cap_bytes == 0 || std::find(each.begin(), each.end(), 0u) != each.end())
    throw usage_error("plan: bucket_limits of 0 bytes; give first_bytes, cap_bytes and each of each_bytes at least 1");
}

/// Returns `ready_order`, checked; if there is none, the reverse of the order of registration.
inline std::vector<int> order_of(std::size_t parameters, std::span<const int> ready_order) {
  if (parameters > static_cast<std::size_t>((std::numeric_limits<int>::max)()))
    throw usage_error("plan: more parameters than an int can number");
  std::vector<int> order(parameters);
  if (ready_order.empty()) {
    for (std::size_t n = 0; n < parameters; ++n) order[n] = static_cast<int>(parameters - 1 - n);
    return order;
  }
  std::vector<char> seen(parameters);
  if (ready_order.size() == parameters)
    for (std::size_t n = 0; n < parameters; ++n) {
      const auto i = static_cast<std::size_t>(ready_order[n]);
      if (ready_order[n] < 0 || i >= parameters || std::exchange(seen[i], char{1})) break;
      order[n] = ready_order[n];
    }
  if (std::find(seen.begin(), seen.end(), char{0}) != seen.end() || ready_order.size() != parameters)
    throw usage_error("plan: a ready_order names each of the " + std::to_string(parameters) +
                      " parameters once; this one is of another model, or damaged");
  return order;
}

/// Moves the `delayed` parameters to the end of an order, and keeps the order otherwise. Returns the number of
/// parameters before them.
inline std::size_t put_last(std::vector<int>& order, std::span<const int> delayed) {
  std::vector<char> late(order.size());
  for (const int i : delayed) {
    if (i < 0 || static_cast<std::size_t>(i) >= late.size())
      throw usage_error("plan: there is no parameter " + std::to_string(i) + " to be delayed among " +
                        std::to_string(late.size()));
    late[static_cast<std::size_t>(i)] = 1;
  }
  std::vector<int> rest;
  for (const int i : order)
    if (late[static_cast<std::size_t>(i)]) rest.push_back(i);
  std::erase_if(order, [&](int i) { return late[static_cast<std::size_t>(i)] != 0; });
  const std::size_t early = order.size();
  order.insert(order.end(), rest.begin(), rest.end());
  return early;
}

/// Returns true if parameter `i` lies directly before or behind the parameters of a bucket, which are one range.
inline bool touches(std::span<const parameter_shape> parameters, std::span<const int> block_of, const bucket& b,
                    int i) {
  const auto [least, most] = std::minmax_element(
      b.slots.begin(), b.slots.end(), [](const auto& x, const auto& y) { return x.parameter < y.parameter; });
  const auto first = static_cast<std::size_t>((std::min)(i, most->parameter)),
             last = static_cast<std::size_t>((std::max)(i, least->parameter));
  if (first > last || block_of[first] != block_of[last]) return false;
  const auto between = parameters.subspan(first + 1, last - first - 1);
  return std::all_of(between.begin(), between.end(), [](const parameter_shape& p) { return p.count == 0; });
}

/// Places the parameters of a bucket in the order of registration, without padding.
inline void place_in_order(bucket& b) {
  std::vector<bucket_slot*> slots;
  for (bucket_slot& s : b.slots) slots.push_back(&s);
  std::sort(slots.begin(), slots.end(), [](auto* x, auto* y) { return x->parameter < y->parameter; });
  std::size_t at = 0;
  for (bucket_slot* s : slots) s->offset = std::exchange(at, at + s->count);
}

}  // namespace detail

TUTTI_DECL plan make_plan(std::span<const parameter_shape> parameters, bucket_limits limits,
                          std::span<const int> ready_order, std::span<const int> delayed, const caller_layout& own) {
  detail::check_limits(limits);
  std::vector<int> order = detail::order_of(parameters.size(), ready_order);
  const std::size_t early = detail::put_last(order, delayed);
  // Half of the range, so that an open bucket and one more parameter cannot overflow.
  limits.cap_bytes = (std::min)(limits.cap_bytes, (std::numeric_limits<std::size_t>::max)() / 2);
  std::vector<bucket> open(dtype_count);
  std::vector<std::size_t> when(parameters.size());  // index of each parameter in the order
  plan result;
  const auto close = [&result](bucket& b) { result.buckets.push_back(std::exchange(b, bucket{})); };
  const auto close_all = [&] {
    for (bucket& b : open)
      if (!b.slots.empty()) close(b);
  };
  std::size_t before = 0;  // buckets of parameters that are not delayed
  for (std::size_t n = 0; n < order.size(); ++n) {
    if (n == early) {
      close_all();
      before = result.buckets.size();
    }
    const auto i = static_cast<std::size_t>(order[n]);
    const parameter_shape& p = parameters[i];
    const std::size_t padded = detail::padded_count(i, p), size = size_of(p.type);
    const std::size_t taken = own.block_of.empty() ? padded : p.count;
    const bool alone = taken * size > limits.cap_bytes;
    bucket single;
    bucket& b = alone ? single : open[static_cast<std::size_t>(p.type)];
    if (!own.block_of.empty() && own.ranges == bucket_ranges::one && !b.slots.empty() &&
        !detail::touches(parameters, own.block_of, b, order[n]))
      close(b);
    b.type = p.type;
    b.slots.push_back({order[n], b.count, p.count, p.rows});
    b.count += taken;
    when[i] = n;
    if (alone || b.count * size >= limits.cap_of(result.buckets.size())) close(b);
  }
  close_all();
  if (early < order.size()) result.delayed = result.buckets.size() - before;
  // A bucket is complete with its last slot. One that never reached the cap may be complete long before a full one.
  const auto complete = [&](const bucket& b) { return when[static_cast<std::size_t>(b.slots.back().parameter)]; };
  std::sort(result.buckets.begin(), result.buckets.end(),
            [&](const bucket& a, const bucket& b) { return complete(a) < complete(b); });
  if (own.block_of.empty()) return result;
  for (bucket& b : result.buckets) {
    detail::place_in_order(b);
    b.tail_lines = 0;
  }
  result.buckets.emplace_back();
  if (result.delayed != 0) ++result.delayed;
  return result;
}

TUTTI_DECL std::vector<int> plan::order() const {
  std::vector<int> parameters;
  for (const bucket& b : buckets)
    for (const bucket_slot& s : b.slots) parameters.push_back(s.parameter);
  return parameters;
}

TUTTI_DECL std::uint64_t plan::id() const noexcept {
  std::uint64_t hash = tutti::detail::fnv_start;
  const auto mix = [&hash](std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) hash = tutti::detail::fnv(hash, (value >> shift) & 0xff);
  };
  mix(buckets.size());
  for (const bucket& b : buckets) {
    mix(static_cast<std::uint64_t>(b.type));
    mix(b.count);
    mix(b.slots.size());
    for (const bucket_slot& s : b.slots) {
      mix(static_cast<std::uint64_t>(s.parameter));
      mix(s.offset);
      mix(s.count);
      mix(s.rows);
    }
    mix(b.tail_lines);
  }
  if (delayed != 0) mix(delayed);
  return hash;
}

}  // namespace tutti::grad
