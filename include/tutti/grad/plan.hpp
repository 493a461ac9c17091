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

/// A gradient to be reduced; the name is used in messages only.
struct parameter_shape {
  std::string name;
  std::size_t count = 0;  ///< elements; 0 is legal
  tutti::dtype type = tutti::dtype::f32;
  std::size_t rows = 1;  ///< if hooks may see a row-major matrix in it; divides the count
};

/// The bytes at which a bucket closes. The first bucket is small, so that communication starts early.
struct bucket_limits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t cap_bytes = std::size_t{25} << 20;
  std::vector<std::size_t> each_bytes = {};  ///< of each of the first buckets to close; replaces first_bytes

  /// Returns the limit of bucket `i`, in the order of closing; at most cap_bytes.
  [[nodiscard]] std::size_t cap_of(std::size_t i) const noexcept {
    if (i < each_bytes.size()) return (std::min)(each_bytes[i], cap_bytes);
    return i == 0 && each_bytes.empty() ? (std::min)(first_bytes, cap_bytes) : cap_bytes;
  }
};

/// The place of a parameter in its bucket.
struct bucket_slot {
  int parameter = 0;       ///< index in the order of registration
  std::size_t offset = 0;  ///< elements from the start of the bucket; in the reducer's memory, starts a line
  std::size_t count = 0;   ///< elements of the parameter
  std::size_t rows = 1;    ///< of the matrix

  friend bool operator==(const bucket_slot&, const bucket_slot&) = default;
};

/// The gradients that one all_reduce carries.
struct bucket {
  tutti::dtype type = tutti::dtype::f32;
  std::size_t count = 0;           ///< elements, padding included; 0 when all its parameters are empty
  std::vector<bucket_slot> slots;  ///< in the order in which the backward pass finishes them
  std::size_t tail_lines = 1;      ///< of 64 bytes behind the gradients, for values that all ranks sum with them; 0 in
                                   ///< the caller's memory

  friend bool operator==(const bucket&, const bucket&) = default;
};

/// The bytes of a line. In the reducer's memory every slot occupies whole lines; the elements that fill up its last one
/// are padding and hold zero.
inline constexpr std::size_t slot_alignment = 64;
/// The number of elements of a line.
template <class T>
inline constexpr std::size_t line_elements = slot_alignment / sizeof(T);

/// A plan: buckets in the order in which a backward pass from the last parameter to the first completes them.
struct plan {
  std::vector<bucket> buckets;
  std::size_t delayed = 0;  ///< buckets at the end of the list that wait for the end of the pass

  /// Returns the parameters, bucket by bucket.
  [[nodiscard]] std::vector<int> order() const;

  /// Returns a hash of the layout (FNV-1a over fixed-width fields), equal on all machines: ranks compare it before they
  /// reduce.
  [[nodiscard]] std::uint64_t id() const noexcept;

  friend bool operator==(const plan&, const plan&) = default;
};

/// The ranges of memory that a bucket may consist of.
enum class bucket_ranges : std::uint8_t { one, several };

/// The places of gradients in memory of the caller's: blocks that parameters fill in the order of registration.
struct caller_layout {
  std::span<const int> block_of = {};  ///< number of each parameter's block; empty if the reducer has the memory
  bucket_ranges ranges = bucket_ranges::several;
};

/// Lays parameters out in buckets. It is a pure function, so equal arguments give equal plans on all ranks. Parameters
/// are placed in the order in which the backward pass completes them: `ready_order`, which names each once, or, if that
/// is empty, the reverse of their registration. Each goes into its dtype's open bucket, which closes when its bytes,
/// padding included, reach the limit of the next bucket to close. A parameter is never split; one larger than
/// `cap_bytes` has a bucket of its own, and the open bucket of its dtype stays open. `delayed` parameters have buckets
/// of their own, at the end. Errors: usage_error for a limit of 0, a dtype without a size, sizes that overflow, rows
/// that do not divide a count, and an order that does not name each parameter once. Cost: O(n log n).
///
/// In memory of the caller's, slots have no padding and lie in a bucket in the order of registration, and buckets have
/// no tail: a last bucket, of float and without parameters, is the tail of all. If a bucket is to be one range, it
/// closes before a parameter that does not touch it.
[[nodiscard]] TUTTI_DECL plan make_plan(std::span<const parameter_shape> parameters, bucket_limits limits = {},
                                        std::span<const int> ready_order = {}, std::span<const int> delayed = {},
                                        const caller_layout& own = {});

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/plan.hpp>
#endif
