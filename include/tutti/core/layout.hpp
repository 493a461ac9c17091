#pragma once
#include <concepts>
#include <cstddef>
#include <span>

#include <tutti/config.hpp>

namespace tutti {

namespace detail {

/// What is wrong with counts or offsets, in words that compilers print: see communicator/slip.hpp.
enum class layout_slip : unsigned char {
  none,
  these_counts_are_a_temporary_and_gone_before_the_operation_ends_so_pass_a_named_container_or_a_span,
  counts_and_offsets_must_be_std_size_t_one_after_another_and_tutti_as_counts_makes_them_of_other_integers
};

template <class R, class... More>
consteval layout_slip slip_of_counts() {
  using enum layout_slip;
  if constexpr (std::ranges::range<R> && !std::ranges::borrowed_range<R>)
    return these_counts_are_a_temporary_and_gone_before_the_operation_ends_so_pass_a_named_container_or_a_span;
  else if constexpr (std::ranges::range<R> && !std::constructible_from<std::span<const std::size_t>, R&>)
    return counts_and_offsets_must_be_std_size_t_one_after_another_and_tutti_as_counts_makes_them_of_other_integers;
  else if constexpr (sizeof...(More) != 0)
    return slip_of_counts<More...>();
  else
    return none;
}

}  // namespace detail

/// How a buffer is cut into one block per rank: block r has counts[r] elements and begins at element offsets[r];
/// without offsets the blocks lie one behind the other. Empty blocks and gaps are legal; blocks that are written to
/// must not overlap, which each call checks: in one pass where offsets ascend, else in n log n steps. Does not own: the
/// two ranges belong to the operation until it has ended, as buffers do. `world.all_gather_v(mine, all, counts)`,
/// `world.gather_v(mine, all, {counts, offsets}, root)`.
class layout {
 public:
  constexpr layout() = default;
  /// No temporaries: the ranges must outlive the operation.
  template <std::ranges::borrowed_range Counts>
    requires std::constructible_from<std::span<const std::size_t>, Counts&>
  constexpr layout(Counts&& counts) : counts_(counts) {}  // NOLINT: counts are a layout
  template <std::ranges::borrowed_range Counts, std::ranges::borrowed_range Offsets>
    requires std::constructible_from<std::span<const std::size_t>, Counts&> &&
                 std::constructible_from<std::span<const std::size_t>, Offsets&>
  constexpr layout(Counts&& counts, Offsets&& offsets) : counts_(counts), offsets_(offsets) {}
  // What does not compile, with the reason.
  template <class Counts, detail::layout_slip Why = detail::slip_of_counts<Counts>()>
    requires(Why != detail::layout_slip::none)
  layout(Counts&&) = delete;
  template <class Counts, class Offsets, detail::layout_slip Why = detail::slip_of_counts<Counts, Offsets>()>
    requires(Why != detail::layout_slip::none)
  layout(Counts&&, Offsets&&) = delete;

  /// Blocks of `each` elements, one behind the other, for any number of ranks.
  static constexpr layout of_equal(std::size_t each) noexcept {
    layout l;
    l.each_ = each;
    l.equal_ = true;
    return l;
  }

  [[nodiscard]] constexpr bool equal() const noexcept { return equal_; }
  [[nodiscard]] constexpr std::span<const std::size_t> counts() const noexcept { return counts_; }
  [[nodiscard]] constexpr std::span<const std::size_t> offsets() const noexcept { return offsets_; }

  /// Elements of block r.
  [[nodiscard]] constexpr std::size_t size(std::size_t r) const noexcept { return equal_ ? each_ : counts_[r]; }
  /// The element at which block r begins. Without offsets, a sum over the blocks before.
  [[nodiscard]] constexpr std::size_t begin(std::size_t r) const noexcept {
    if (equal_) return r * each_;
    if (!offsets_.empty()) return offsets_[r];
    std::size_t before = 0;
    for (std::size_t i = 0; i < r; ++i) before += counts_[i];
    return before;
  }
  /// Elements of the longest block.
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
