#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/grad/pass/ready_tracker.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// A block of the caller's memory that holds whole gradients, one behind the other. Does not own.
struct gradient_block {
  std::byte* data = nullptr;
  std::size_t count = 0;  ///< elements
  tutti::dtype type = tutti::dtype::f32;

  gradient_block() = default;
  /// Describes a contiguous range of elements that can be written, such as a std::span or a named std::vector.
  template <std::ranges::contiguous_range R>
    requires std::ranges::sized_range<R> && std::ranges::borrowed_range<R> && number<std::ranges::range_value_t<R>> &&
                 (!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
  gradient_block(R&& memory)  // NOLINT: a range is a block
      : data(reinterpret_cast<std::byte*>(std::ranges::data(memory))),
        count(std::ranges::size(memory)),
        type(dtype_of<std::ranges::range_value_t<R>>()) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(type); }
};

/// Memory of gradients: a block, or a range of blocks, which must not be the only owner of the gradients if it is
/// temporary.
template <class M>
concept gradient_memory =
    std::convertible_to<M, gradient_block> ||
    (std::ranges::forward_range<M> && std::convertible_to<std::ranges::range_reference_t<M>, gradient_block> &&
     (std::is_lvalue_reference_v<M> || std::convertible_to<std::ranges::range_value_t<M>, gradient_block>));

namespace detail {
/// Error in the memory given to a reducer, in words that compilers print.
enum class memory_error : std::uint8_t {
  none,
  gradients_lie_in_a_named_container_or_span_of_elements_that_can_be_written_or_in_a_range_of_such_spans
};
template <class M>
consteval memory_error error_of_memory() {
  using enum memory_error;
  return !std::ranges::range<M> || gradient_memory<M>
             ? none
             : gradients_lie_in_a_named_container_or_span_of_elements_that_can_be_written_or_in_a_range_of_such_spans;
}
}  // namespace detail

/// The caller's memory of a model's gradients, or none, in which case they lie in the reducer's. Parameters fill the
/// blocks in the order of registration, without gaps; a block holds whole parameters of one type.
class own_memory {
 public:
  own_memory() = default;
  template <gradient_memory M>
  explicit own_memory(M&& memory) : given_(true) {
    if constexpr (std::convertible_to<M, gradient_block>)
      blocks_.push_back(std::forward<M>(memory));
    else
      for (auto&& one : memory) blocks_.push_back(one);
  }

  /// Finds the place of each parameter. Throws usage_error, with the block and the parameter, if the blocks are not
  /// those of the parameters, and if two blocks overlap.
  void place(const ready_tracker& all);

  [[nodiscard]] bool given() const noexcept { return given_; }
  /// Returns the number of each parameter's block, once placed; empty if there is no memory of the caller's.
  [[nodiscard]] const std::vector<int>& block_of() const noexcept { return block_of_; }
  /// Returns the address of a gradient.
  [[nodiscard]] std::byte* address(std::size_t parameter) const noexcept { return at_[parameter]; }
  /// Returns the ranges of memory in which the gradients of a bucket lie, in the order of registration.
  [[nodiscard]] std::vector<gradient_block> ranges_of(const bucket& k) const;
  /// Returns a hash of the places, which must be equal on all ranks; 0 if there is no memory of the caller's.
  [[nodiscard]] std::uint64_t id() const noexcept;

 private:
  void require_apart() const;

  bool given_ = false;
  std::vector<gradient_block> blocks_;
  std::vector<int> block_of_;   // by parameter
  std::vector<std::byte*> at_;  // by parameter
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/own_memory.hpp>
#endif
