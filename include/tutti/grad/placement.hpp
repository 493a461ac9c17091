#pragma once
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/plan.hpp>

namespace tutti::grad {

/// Where the gradients of a plan lie in one piece of memory, whatever memory that is: offsets in bytes, every bucket
/// from a page on. Errors: usage_error for gradients that no memory could hold.
class placement {
 public:
  struct place {
    std::size_t offset = 0, count = 0;
    dtype type = dtype::f32;
    std::size_t bucket = 0;
    [[nodiscard]] std::size_t bytes() const noexcept { return count * size_of(type); }
  };

  /// `p` is the plan of `shapes`.
  placement(std::span<const parameter_shape> shapes, plan p) : plan_(std::move(p)), places_(shapes.size()) {
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const bucket& k = plan_.buckets[b];
      const std::size_t size = size_of(k.type);
      starts_.push_back(bytes_);
      for (const bucket_slot& s : k.slots)
        places_[static_cast<std::size_t>(s.parameter)] = {bytes_ + s.offset * size, s.count, k.type, b};
      if (bytes_ > most || k.count > (most - bytes_) / size)
        throw usage_error("the gradients have more bytes than memory has addresses");
      bytes_ += k.count * size + k.tail_lines * slot_alignment;
      bytes_ = (bytes_ + page - 1) / page * page;
    }
  }

  [[nodiscard]] const plan& layout() const noexcept { return plan_; }
  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t start_of(std::size_t b) const noexcept { return starts_[b]; }
  [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const noexcept { return places_[parameter].bucket; }
  /// True for a parameter whose bucket waits for the end of the pass.
  [[nodiscard]] bool is_delayed(std::size_t parameter) const noexcept {
    return bucket_of(parameter) + plan_.delayed >= plan_.buckets.size();
  }

  [[nodiscard]] const place& of(std::size_t parameter) const noexcept { return places_[parameter]; }
  /// The same, checked: usage_error for a number that none has, and for another type than it has.
  [[nodiscard]] const place& of(std::size_t parameter, dtype asked) const {
    if (parameter >= places_.size())
      throw usage_error("there is no gradient " + std::to_string(parameter) + " among " +
                        std::to_string(places_.size()));
    const place& p = places_[parameter];
    if (p.type != asked)
      throw usage_error("gradient " + std::to_string(parameter) + " is " + std::string(name(p.type)) +
                        ", asked for as " + std::string(name(asked)));
    return p;
  }

 private:
  static constexpr std::size_t page = 4096, most = std::numeric_limits<std::ptrdiff_t>::max();

  plan plan_;
  std::vector<place> places_;
  std::vector<std::size_t> starts_;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::grad
