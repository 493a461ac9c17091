#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>

namespace tutti::grad {

/// A gradient to be reduced; the name serves messages only.
struct parameter_shape {
  std::string name;
  std::size_t count = 0;  ///< elements; 0 is legal
  tutti::dtype type = tutti::dtype::f32;
  std::size_t rows = 1;  ///< of a matrix in row-major order, for hooks that see one in it; divides the count
};

/// How many bytes a bucket holds before it closes. The first one is small, so that something travels early.
struct bucket_limits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t cap_bytes = std::size_t{25} << 20;
  std::vector<std::size_t> each_bytes = {};  ///< of the first buckets to close, one by one; instead of first_bytes

  /// Of the bucket that closes as number `i`; at most cap_bytes.
  [[nodiscard]] std::size_t cap_of(std::size_t i) const noexcept {
    if (i < each_bytes.size()) return (std::min)(each_bytes[i], cap_bytes);
    return i == 0 && each_bytes.empty() ? (std::min)(first_bytes, cap_bytes) : cap_bytes;
  }
};

/// Where a parameter lies in its bucket.
struct bucket_slot {
  int parameter = 0;       ///< index in the order of registration
  std::size_t offset = 0;  ///< elements from the start of the bucket; starts a line of 64 bytes
  std::size_t count = 0;   ///< elements of the parameter
  std::size_t rows = 1;    ///< of the matrix that it is

  friend bool operator==(const bucket_slot&, const bucket_slot&) = default;
};

/// What one all_reduce carries.
struct bucket {
  tutti::dtype type = tutti::dtype::f32;
  std::size_t count = 0;           ///< elements, padding included; 0 when all its parameters are empty
  std::vector<bucket_slot> slots;  ///< in the order in which the backward pass finishes them
  std::size_t tail_lines = 1;      ///< of 64 bytes behind the gradients, for what all ranks add up with them

  friend bool operator==(const bucket&, const bucket&) = default;
};

/// Every slot occupies a whole number of these lines; the elements that fill up its last line are padding and hold
/// zero.
inline constexpr std::size_t slot_alignment = 64;
/// Elements of a line.
template <class T>
inline constexpr std::size_t line_elements = slot_alignment / sizeof(T);

/// Buckets in the order in which a backward pass from the last parameter to the first completes them.
struct plan {
  std::vector<bucket> buckets;
  std::size_t delayed = 0;  ///< so many at the end wait for the end of the pass

  /// The parameters, bucket by bucket.
  [[nodiscard]] std::vector<int> order() const;

  /// A hash of the layout (FNV-1a over fixed-width fields), equal on all machines: ranks compare it before they reduce.
  [[nodiscard]] std::uint64_t id() const noexcept;

  friend bool operator==(const plan&, const plan&) = default;
};

/// Lays parameters out in buckets; a pure function, so equal arguments give equal plans on all ranks.
/// Parameters go in the order in which the backward pass finishes them: `arrival`, which names each once, or, where
/// that is empty, the reverse of their registration. Each goes into its dtype's open bucket, which closes when its
/// bytes, padding included, reach the cap of the bucket that closes next. A parameter is never split; one larger than
/// `cap_bytes` travels alone, and the bucket that is open beside it stays open. `delayed` ones have buckets of their
/// own, at the end.
/// Errors: usage_error for a cap of 0, a dtype without a size, sizes that overflow, rows that do not divide a count,
/// and an order that is none. Cost: O(n + b log b) for n parameters in b buckets.
[[nodiscard]] TUTTI_DECL plan make_plan(std::span<const parameter_shape> parameters, bucket_limits limits = {},
                                        std::span<const int> arrival = {}, std::span<const int> delayed = {});

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/plan.hpp>
#endif
