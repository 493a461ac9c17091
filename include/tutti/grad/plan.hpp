#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>

namespace tutti::grad {

/// A gradient to be reduced; the name serves messages only.
struct parameter_shape {
  std::string name;
  std::size_t count = 0;  ///< elements; 0 is legal
  tutti::dtype type = tutti::dtype::f32;
};

/// How many bytes a bucket holds before it closes. The first one is small, so that something travels early.
struct bucket_limits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t cap_bytes = std::size_t{25} << 20;
};

/// Where a parameter lies in its bucket.
struct bucket_slot {
  int parameter = 0;       ///< index in the order of registration
  std::size_t offset = 0;  ///< elements from the start of the bucket; starts a line of 64 bytes
  std::size_t count = 0;   ///< elements of the parameter

  friend bool operator==(const bucket_slot&, const bucket_slot&) = default;
};

/// What one all_reduce carries.
struct bucket {
  tutti::dtype type = tutti::dtype::f32;
  std::size_t count = 0;           ///< elements, padding included; 0 when all its parameters are empty
  std::vector<bucket_slot> slots;  ///< in the order in which the backward pass finishes them

  friend bool operator==(const bucket&, const bucket&) = default;
};

/// Every slot occupies a whole number of these lines; the elements that fill up its last line are padding and hold
/// zero.
inline constexpr std::size_t slot_alignment = 64;

/// Buckets in the order in which a backward pass from the last parameter to the first completes them.
struct plan {
  std::vector<bucket> buckets;

  /// A hash of the layout (FNV-1a over fixed-width fields), equal on all machines: ranks compare it before they reduce.
  [[nodiscard]] std::uint64_t id() const noexcept {
    std::uint64_t hash = 14695981039346656037u;
    const auto mix = [&hash](std::uint64_t value) {
      for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((value >> shift) & 0xff)) * 1099511628211u;
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
      }
    }
    return hash;
  }

  friend bool operator==(const plan&, const plan&) = default;
};

namespace detail {

[[noreturn]] inline void refuse_parameter(std::size_t index, const parameter_shape& p, const char* why) {
  throw usage_error("plan: parameter " + std::to_string(index) + " (\"" + p.name + "\") " + why);
}

/// Elements from the start of the slot to the start of the next one.
inline std::size_t padded_count(std::size_t index, const parameter_shape& p) {
  if (static_cast<std::size_t>(p.type) >= dtype_count)
    refuse_parameter(index, p, "has an unknown dtype; use one of tutti::dtype");
  const std::size_t size = size_of(p.type);
  if (size == 0 || slot_alignment % size != 0)
    refuse_parameter(index, p, "has a dtype without a size that divides 64; give a dtype of numbers");
  const std::size_t line = slot_alignment / size;
  if (p.count > std::numeric_limits<std::size_t>::max() / size - line)
    refuse_parameter(index, p, "has more bytes than memory has addresses; check its count");
  return (p.count + line - 1) / line * line;
}

}  // namespace detail

/// Lays parameters out in buckets; a pure function, so equal shapes and limits give equal plans on all ranks.
/// Parameters go in reverse order of registration, as a backward pass finishes them, into their dtype's open bucket.
/// A bucket closes when its bytes, padding included, reach the cap: `first_bytes` (at most `cap_bytes`) until a bucket
/// of the plan has closed, `cap_bytes` from then on. A parameter is never split; one larger than `cap_bytes` travels
/// alone, and the bucket that is open beside it stays open.
/// Errors: usage_error for a cap of 0, a dtype without a size, and sizes that overflow.
/// Cost: O(n + b log b) for n parameters in b buckets.
[[nodiscard]] inline plan make_plan(std::span<const parameter_shape> parameters, bucket_limits limits = {}) {
  if (limits.first_bytes == 0 || limits.cap_bytes == 0)
    throw usage_error("plan: bucket_limits of 0 bytes; give first_bytes and cap_bytes at least 1");
  if (parameters.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw usage_error("plan: more parameters than an int can number");
  // Half of the range, so that an open bucket and one more parameter cannot overflow.
  const std::size_t cap = std::min(limits.cap_bytes, std::numeric_limits<std::size_t>::max() / 2);
  const std::size_t first_cap = std::min(limits.first_bytes, cap);
  std::vector<bucket> open(dtype_count);
  plan result;
  const auto close = [&result](bucket& b) { result.buckets.push_back(std::exchange(b, bucket{})); };
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const parameter_shape& p = parameters[i];
    const std::size_t padded = detail::padded_count(i, p), size = size_of(p.type);
    const bool alone = padded * size > cap;
    bucket single;
    bucket& b = alone ? single : open[static_cast<std::size_t>(p.type)];
    b.type = p.type;
    b.slots.push_back({static_cast<int>(i), b.count, p.count});
    b.count += padded;
    if (alone || b.count * size >= (result.buckets.empty() ? first_cap : cap)) close(b);
  }
  for (bucket& b : open)
    if (!b.slots.empty()) close(b);
  // A bucket is complete with its last slot: one that never reached the cap may be so long before a full one is.
  std::sort(result.buckets.begin(), result.buckets.end(),
            [](const bucket& a, const bucket& b) { return a.slots.back().parameter > b.slots.back().parameter; });
  return result;
}

}  // namespace tutti::grad
