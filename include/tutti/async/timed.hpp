#pragma once
#include <algorithm>

#include <tutti/core/deadline.hpp>

namespace tutti::detail {

/// Condition of a wait that ends at `done()` or at the time `until`, whichever is first. The engine sleeps no longer
/// than until then.
template <class Done>
struct timed {
  Done done;
  deadline until;
  bool operator()() const { return done() || clock::now() >= until; }
};
template <class Done>
timed(Done, deadline) -> timed<Done>;  // clang 16 deduces no aggregate

/// Returns the longest time that a wait may sleep before it looks again.
template <class Done>
duration at_most([[maybe_unused]] const Done& done, duration most) noexcept {
  if constexpr (requires { done.until; })
    return (std::min)(remaining(done.until), most);
  else
    return most;
}

}  // namespace tutti::detail
