#pragma once
#include <chrono>
#include <cstddef>
#include <exception>
#include <latch>
#include <optional>
#include <string>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/error.hpp>
#include <vector>

// Worlds of threads whose ranks fail one by one: what did each of them see?

namespace ranks {

using communicator = tutti::communicator<tutti::threads>;

/// How a rank ended: nothing, a usage_error, or an error with its kind.
struct outcome {
  bool usage = false;
  std::optional<tutti::errc> failed;
  std::string text;

  [[nodiscard]] bool fine() const { return !usage && !failed && text.empty(); }
  [[nodiscard]] bool says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

template <class Call>
outcome outcome_of(Call call) {
  try {
    call();
    return {};
  } catch (const tutti::usage_error& e) {
    return {true, {}, e.what()};
  } catch (const tutti::error& e) {
    return {false, e.kind(), e.what()};
  } catch (const std::exception& e) {
    return {false, {}, std::string("other: ") + e.what()};
  }
}

/// Runs `f(world)` on every rank. Nobody says goodbye before all have ended, so that ranks learn of a failure only from
/// what the failing one did itself.
template <class F>
std::vector<outcome> outcomes(int size, F f) {
  std::vector<outcome> all(static_cast<std::size_t>(size));
  std::latch ended(size);
  tutti::run_threads(
      size,
      [&](communicator& world) {
        all[static_cast<std::size_t>(world.rank())] = outcome_of([&] { f(world); });
        ended.arrive_and_wait();
      },
      std::chrono::seconds(60));
  return all;
}

}  // namespace ranks
