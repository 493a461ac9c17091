#pragma once
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/kernels/copy.hpp>
#include <tutti/grad/own_memory.hpp>
#include <tutti/grad/pass/placement.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// Returns true for the types of gradients: floats whose mean can be rounded.
constexpr bool has_mean(dtype t) noexcept {
  return t == dtype::f16 || t == dtype::bf16 || t == dtype::f32 || t == dtype::f64;
}

/// Calls `f.template operator()<T>()` for the element type of a gradient. Throws usage_error for a type that has no
/// mean.
template <class F>
decltype(auto) visit_gradient(dtype t, F&& f) {
  if (t == dtype::f16) return f.template operator()<float16>();
  if (t == dtype::bf16) return f.template operator()<bfloat16>();
  if (t == dtype::f32) return f.template operator()<float>();
  if (t == dtype::f64) return f.template operator()<double>();
  throw usage_error("gradients of type " + std::string(name(t)) +
                    " cannot be averaged; use float16, bfloat16, float or double");
}

/// The memory of all gradients. Every gradient is a view into its bucket from the start, so that nothing is copied
/// before it is sent, and peers on the same node can map the memory. Zero at first, but for memory of the caller's.
/// Views stay valid as long as the arena, also when it is moved. Errors: those of placement, and those of `allocate`.
class arena : public placement {
 public:
  /// Allocates the memory of `p`, the plan of `shapes`; if gradients lie in memory of the caller's, that of the tail.
  /// `allocate(bytes)` returns a mapped_array<std::byte>, as communicator::allocate does.
  template <std::invocable<std::size_t> Allocate>
  arena(std::span<const parameter_shape> shapes, plan p, Allocate allocate, const own_memory& own = {})
      : placement(shapes, std::move(p)),
        memory_(allocate(bytes() - (own.given() ? start_of_last() : 0))),
        at_(shapes.size()) {
    find_ranges(own);
  }
  arena(arena&&) = default;
  arena& operator=(arena&&) = default;

  /// Sets all gradients to zero.
  void clear() const noexcept {
    if (memory_.size() != 0) std::memset(memory_.data(), 0, memory_.size());
    for (std::size_t i = 0; i < size(); ++i)
      if (of(i).count != 0 && !overlap(memory_.data(), memory_.size(), at_[i], 1))
        std::memset(at_[i], 0, of(i).bytes());
  }
  /// Copies the values of all gradients from an arena of the same parameters.
  void copy_from(const arena& other) noexcept {
    for (std::size_t i = 0; i < size(); ++i)
      if (at_[i] != other.at_[i]) copy_bytes(at_[i], other.at_[i], of(i).bytes());
  }

  /// Returns true if some of these bytes lie in this memory.
  [[nodiscard]] bool touches(const void* p, std::size_t bytes) const noexcept {
    bool any = overlap(memory_.data(), memory_.size(), p, bytes);
    for (std::size_t i = 0; i < size(); ++i) any = any || overlap(at_[i], of(i).bytes(), p, bytes);
    return any;
  }

  /// Returns the gradient of a parameter, by its index in the order of registration.
  template <number T>
  [[nodiscard]] std::span<T> gradient(std::size_t parameter) const {
    const place& p = of(parameter, dtype_of<T>());
    return {reinterpret_cast<T*>(at_[parameter]), p.count};
  }

  /// Returns a whole bucket of at most one range: its gradients with padding of zeros between them, and the tail, which
  /// carries values that all ranks must sum exactly, such as the weight.
  template <number T>
  [[nodiscard]] std::span<T> bucket_with_tail(std::size_t b) const noexcept {
    const auto gradients = ranges<T>(b);
    T* const begin = gradients.empty() ? tail<T>(b).data() : gradients.front().data();
    return {begin, layout().buckets[b].count + tail_count<T>(b)};
  }
  /// Returns the tail of a bucket.
  template <number T>
  [[nodiscard]] std::span<T> tail(std::size_t b) const noexcept {
    return {reinterpret_cast<T*>(buckets_[b].tail), tail_count<T>(b)};
  }
  /// Returns the ranges of memory in which the gradients of a bucket lie, with their padding: more than one only in
  /// memory of the caller's.
  template <number T>
  [[nodiscard]] std::span<const std::span<T>> ranges(std::size_t b) const noexcept {
    return std::span{std::get<list<T>>(ranges_)}.subspan(buckets_[b].first, buckets_[b].count);
  }

 private:
  template <class T>
  [[nodiscard]] std::size_t tail_count(std::size_t b) const noexcept {
    return layout().buckets[b].tail_lines * line_elements<T>;
  }
  template <class T>
  using list = std::vector<std::span<T>>;
  /// The places of a bucket: its ranges in the list of its type, and its tail.
  struct bucket_places {
    std::size_t first, count;
    std::byte* tail;
  };
  void find_ranges(const own_memory& own);

  mapped_array<std::byte> memory_;
  std::vector<std::byte*> at_;  // by parameter
  std::vector<bucket_places> buckets_;
  std::tuple<list<float>, list<double>, list<float16>, list<bfloat16>> ranges_;
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/arena.hpp>
#endif
