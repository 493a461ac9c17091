#pragma once
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/kernels/copy.hpp>
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
/// before it is sent, and peers on the same node can map the memory. Zero at first. Views stay valid as long as the
/// arena, also when it is moved. Errors: those of placement, and those of `allocate`.
class arena : public placement {
 public:
  /// Allocates the memory of `p`, the plan of `shapes`. `allocate(bytes)` returns a mapped_array<std::byte>, as
  /// communicator::allocate does.
  template <std::invocable<std::size_t> Allocate>
  arena(std::span<const parameter_shape> shapes, plan p, Allocate allocate)
      : placement(shapes, std::move(p)), memory_(allocate(bytes())) {}
  arena(arena&&) = default;
  arena& operator=(arena&&) = default;

  /// Sets all gradients to zero.
  void clear() noexcept { std::memset(memory_.data(), 0, memory_.size()); }
  /// Copies the values of all gradients from an arena of the same parameters.
  void copy_from(const arena& other) noexcept {
    for (std::size_t i = 0; i < size(); ++i)
      copy_bytes(memory_.data() + of(i).offset, other.memory_.data() + other.of(i).offset, of(i).bytes());
  }

  /// Returns true if some of these bytes lie in this memory.
  [[nodiscard]] bool touches(const void* p, std::size_t bytes) const noexcept {
    return overlap(memory_.data(), memory_.size(), p, bytes);
  }

  /// Returns the gradient of a parameter, by its index in the order of registration.
  template <number T>
  [[nodiscard]] std::span<T> gradient(std::size_t parameter) const {
    const place& p = of(parameter, dtype_of<T>());
    return {reinterpret_cast<T*>(memory_.data() + p.offset), p.count};
  }

  /// Returns a whole bucket: its gradients with padding of zeros between them, and the tail, which carries values that
  /// all ranks must sum exactly, such as the weight.
  template <number T>
  [[nodiscard]] std::span<T> bucket_with_tail(std::size_t b) const noexcept {
    return {reinterpret_cast<T*>(memory_.data() + start_of(b)), layout().buckets[b].count + tail_count<T>(b)};
  }
  /// Returns the tail of a bucket.
  template <number T>
  [[nodiscard]] std::span<T> tail(std::size_t b) const noexcept {
    return bucket_with_tail<T>(b).last(tail_count<T>(b));
  }

 private:
  template <class T>
  [[nodiscard]] std::size_t tail_count(std::size_t b) const noexcept {
    return layout().buckets[b].tail_lines * line_elements<T>;
  }

  mapped_array<std::byte> memory_;
};

}  // namespace tutti::grad
