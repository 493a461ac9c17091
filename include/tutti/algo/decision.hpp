#pragma once
#include <cstdint>

#include <tutti/core/options.hpp>

namespace tutti::algo {

/// Progress of a call inside the function that issues it, before there is a coroutine: not begun, posted, or complete.
enum class progress : char { nothing, posted, all };

/// Decision about one call, made once while it is issued: the algorithm, `automatic` until it is chosen or if the
/// collective has a single implementation; and the progress that the fast path has made with it.
struct decision {
  algorithm via = algorithm::automatic;
  progress so_far = progress::nothing;

  [[nodiscard]] constexpr bool is_begun() const noexcept { return so_far != progress::nothing; }
  [[nodiscard]] constexpr bool is_complete() const noexcept { return so_far == progress::all; }
};

/// Function that is called once a call has been posted inside the function that issues it, before it waits for the
/// others: what it does takes no time there. Refers to `F`.
class when_posted {
 public:
  when_posted() = default;
  template <class F>
  explicit when_posted(F& f) noexcept
      : context_(&f),
        call_([](void* at, std::uint64_t sequence, algorithm via) noexcept { (*static_cast<F*>(at))(sequence, via); }) {
  }
  /// Tells the number of the call in its group, and its algorithm.
  void operator()(std::uint64_t sequence, algorithm via) const noexcept {
    if (call_) call_(context_, sequence, via);
  }

 private:
  void* context_ = nullptr;
  void (*call_)(void*, std::uint64_t, algorithm) noexcept = nullptr;
};

}  // namespace tutti::algo
