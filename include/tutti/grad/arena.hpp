#pragma once
#include <concepts>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// True for the types of gradients: what has a mean that rounds gracefully.
constexpr bool has_mean(dtype t) noexcept {
  return t == dtype::f16 || t == dtype::bf16 || t == dtype::f32 || t == dtype::f64;
}

/// Calls `f.template operator()<T>()` for the element type of a gradient; usage_error for one that has no mean.
template <class F>
decltype(auto) visit_gradient(dtype t, F&& f) {
  switch (t) {
    case dtype::f16:
      return f.template operator()<float16>();
    case dtype::bf16:
      return f.template operator()<bfloat16>();
    case dtype::f32:
      return f.template operator()<float>();
    case dtype::f64:
      return f.template operator()<double>();
    default:
      throw usage_error("gradients of type " + std::string(name(t)) +
                        " cannot be averaged; use float16, bfloat16, float or double");
  }
}

/// The memory of all gradients, once: every gradient is a view into its bucket from the start, so that nothing is
/// copied before it travels, and the memory is such that peers on the same machine map it. Zeroed when made. Views stay
/// valid as long as the arena, wherever it is moved. Errors: usage_error for gradients that no memory could hold, and
/// what `allocate` throws.
class arena {
 public:
  /// `p` is the plan of `shapes`. `allocate(bytes)` returns a mapped_array<std::byte>; communicator::allocate does.
  template <std::invocable<std::size_t> Allocate>
  arena(std::span<const parameter_shape> shapes, plan p, Allocate allocate)
      : plan_(std::move(p)), places_(shapes.size()) {
    std::size_t bytes = 0;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const bucket& k = plan_.buckets[b];
      const std::size_t size = size_of(k.type);
      starts_.push_back(bytes);
      for (const bucket_slot& s : k.slots)
        places_[static_cast<std::size_t>(s.parameter)] = {bytes + s.offset * size, s.count, k.type, b};
      if (bytes > most || k.count > (most - bytes) / size)
        throw usage_error("the gradients have more bytes than memory has addresses");
      bytes += k.count * size + k.tail_lines * slot_alignment;
      bytes = (bytes + page - 1) / page * page;
    }
    memory_ = allocate(bytes);
  }
  arena(arena&&) = default;
  arena& operator=(arena&&) = default;

  [[nodiscard]] const plan& layout() const noexcept { return plan_; }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const noexcept { return places_[parameter].bucket; }
  /// True for a parameter whose bucket waits for the end of the pass.
  [[nodiscard]] bool is_delayed(std::size_t parameter) const noexcept {
    return bucket_of(parameter) + plan_.delayed >= plan_.buckets.size();
  }

  /// All gradients become zero.
  void clear() noexcept { std::memset(memory_.data(), 0, memory_.size()); }
  /// Takes the values of all gradients from an arena of the same parameters.
  void copy_from(const arena& other) noexcept {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const place &from = other.places_[i], &to = places_[i];
      if (to.count != 0)
        std::memcpy(memory_.data() + to.offset, other.memory_.data() + from.offset, to.count * size_of(to.type));
    }
  }

  /// The gradient of a parameter, in the order of registration.
  template <number T>
  [[nodiscard]] std::span<T> gradient(std::size_t parameter) const {
    if (parameter >= places_.size())
      throw usage_error("there is no gradient " + std::to_string(parameter) + " among " +
                        std::to_string(places_.size()));
    const place& p = places_[parameter];
    if (p.type != dtype_of<T>())
      throw usage_error("gradient " + std::to_string(parameter) + " is " + std::string(name(p.type)) +
                        ", asked for as " + std::string(name(dtype_of<T>())));
    return {reinterpret_cast<T*>(memory_.data() + p.offset), p.count};
  }

  /// A whole bucket: its gradients, padding of zeros between them, and the tail behind them, in which travels what all
  /// ranks must add up exactly, such as the weight.
  template <number T>
  [[nodiscard]] std::span<T> bucket_with_tail(std::size_t b) const noexcept {
    return {reinterpret_cast<T*>(memory_.data() + starts_[b]), plan_.buckets[b].count + tail_count<T>(b)};
  }
  /// The lines behind a bucket's gradients.
  template <number T>
  [[nodiscard]] std::span<T> tail(std::size_t b) const noexcept {
    return bucket_with_tail<T>(b).last(tail_count<T>(b));
  }

 private:
  template <class T>
  [[nodiscard]] std::size_t tail_count(std::size_t b) const noexcept {
    return plan_.buckets[b].tail_lines * line_elements<T>;
  }

  static constexpr std::size_t page = 4096, most = std::numeric_limits<std::ptrdiff_t>::max();
  struct place {
    std::size_t offset = 0, count = 0;
    dtype type = dtype::f32;
    std::size_t bucket = 0;
  };

  plan plan_;
  std::vector<place> places_;
  std::vector<std::size_t> starts_;
  mapped_array<std::byte> memory_;
};

}  // namespace tutti::grad
