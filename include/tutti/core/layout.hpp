#pragma once
#include <concepts>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti {

namespace detail {

/// The mistakes in counts and offsets that do not compile, in words that compilers print: see
/// communicator/argument_error.hpp.
enum class layout_error : unsigned char {
  none,
  these_counts_are_a_temporary_and_gone_before_the_operation_ends_so_pass_a_named_container_or_a_span,
  counts_and_offsets_must_be_std_size_t_one_after_another_and_tutti_as_counts_makes_them_of_other_integers
};

template <class R, class... More>
consteval layout_error error_of_counts() {
  using enum layout_error;
  if constexpr (std::ranges::range<R> && !std::ranges::borrowed_range<R>)
    return these_counts_are_a_temporary_and_gone_before_the_operation_ends_so_pass_a_named_container_or_a_span;
  else if constexpr (std::ranges::range<R> && !std::constructible_from<std::span<const std::size_t>, R&>)
    return counts_and_offsets_must_be_std_size_t_one_after_another_and_tutti_as_counts_makes_them_of_other_integers;
  else if constexpr (sizeof...(More) != 0)
    return error_of_counts<More...>();
  else
    return none;
}

}  // namespace detail

/// The division of a buffer into one block per rank: block r has counts[r] elements and begins at element offsets[r];
/// without offsets the blocks are contiguous. Empty blocks and gaps are legal. Blocks that are written must not
/// overlap, which each call checks: in one pass if offsets ascend, else in n log n steps for n ranks. Does not own:
/// both ranges must stay valid and unchanged until the operation has ended, as buffers must. Examples:
/// `world.all_gather_v(mine, all, counts)`, `world.gather_v(mine, all, {counts, offsets}, root)`.
class layout {
 public:
  constexpr layout() = default;
  /// Refuses temporaries, since the ranges must outlive the operation.
  template <std::ranges::borrowed_range Counts>
    requires std::constructible_from<std::span<const std::size_t>, Counts&>
  constexpr layout(Counts&& counts) : counts_(counts) {}  // NOLINT: counts are a layout
  template <std::ranges::borrowed_range Counts, std::ranges::borrowed_range Offsets>
    requires std::constructible_from<std::span<const std::size_t>, Counts&> &&
                 std::constructible_from<std::span<const std::size_t>, Offsets&>
  constexpr layout(Counts&& counts, Offsets&& offsets) : counts_(counts), offsets_(offsets) {}
  // Deleted overloads that name the mistake in the compiler's message.
  template <class Counts, detail::layout_error Why = detail::error_of_counts<Counts>()>
    requires(Why != detail::layout_error::none)
  layout(Counts&&) = delete;
  template <class Counts, class Offsets, detail::layout_error Why = detail::error_of_counts<Counts, Offsets>()>
    requires(Why != detail::layout_error::none)
  layout(Counts&&, Offsets&&) = delete;

  /// Returns a layout of contiguous blocks of `each` elements, for any number of ranks.
  static constexpr layout of_equal(std::size_t each) noexcept {
    layout l;
    l.each_ = each;
    l.equal_ = true;
    return l;
  }

  [[nodiscard]] constexpr bool equal() const noexcept { return equal_; }
  [[nodiscard]] constexpr std::span<const std::size_t> counts() const noexcept { return counts_; }
  [[nodiscard]] constexpr std::span<const std::size_t> offsets() const noexcept { return offsets_; }

  /// Returns the number of elements of block r.
  [[nodiscard]] constexpr std::size_t size(std::size_t r) const noexcept { return equal_ ? each_ : counts_[r]; }
  /// Returns the element at which block r begins. Takes r steps without offsets.
  [[nodiscard]] constexpr std::size_t begin(std::size_t r) const noexcept {
    if (equal_) return r * each_;
    if (!offsets_.empty()) return offsets_[r];
    std::size_t before = 0;
    for (std::size_t i = 0; i < r; ++i) before += counts_[i];
    return before;
  }
  /// Returns the number of elements of the longest block.
  [[nodiscard]] constexpr std::size_t longest() const noexcept {
    std::size_t most = each_;
    for (const std::size_t c : counts_) most = c > most ? c : most;
    return most;
  }

 private:
  std::span<const std::size_t> counts_{}, offsets_{};
  std::size_t each_ = 0;
  bool equal_ = false;
};

}  // namespace tutti
