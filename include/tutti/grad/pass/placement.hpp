#pragma once
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// The places of a plan's gradients in one block of memory of any kind: offsets in bytes, every bucket with
/// a tail ends at the end of a page. Errors: usage_error for gradients that no memory could hold.
class placement {
 public:
  struct place {
    std::size_t offset = 0, count = 0;
    dtype type = dtype::f32;
    std::size_t bucket = 0;
    [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(type); }
  };

  /// Computes the places; `p` must be the plan of `shapes`.
  placement(std::span<const parameter_shape> shapes, plan p);

  [[nodiscard]] const plan& layout() const noexcept { return plan_; }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t start_of(std::size_t b) const noexcept { return starts_[b]; }
  [[nodiscard]] std::size_t start_of_last() const noexcept { return starts_.empty() ? 0 : starts_.back(); }
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const noexcept { return places_[parameter].bucket; }

  [[nodiscard]] const place& of(std::size_t parameter) const noexcept { return places_[parameter]; }
  /// Returns the place of a parameter; throws usage_error for an index that is no parameter's, and if its type is not
  /// `asked`.
  [[nodiscard]] const place& of(std::size_t parameter, dtype asked) const;

 private:
  static constexpr std::size_t page = 4096, most = (std::numeric_limits<std::ptrdiff_t>::max)();

  plan plan_;
  std::vector<place> places_;
  std::vector<std::size_t> starts_;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/placement.hpp>
#endif
