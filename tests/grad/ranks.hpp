#pragma once
#include <chrono>
#include <cstddef>
#include <exception>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/arena.hpp>
#include <vector>

#include <support/expect.hpp>

// Worlds of threads whose ranks fail one by one: what did each of them see?

namespace ranks {

using communicator = tutti::communicator<tutti::threads>;

using tutti_test::expect;

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

/// A pass that marks everything, the last gradient first.
template <class Reducer>
void whole_pass(communicator& world, Reducer& r, double weight = 1) {
  auto pass = r.begin(weight);
  for (std::size_t i = r.size(); i-- > 0;) pass.ready(i);
  tutti::sync_wait(world, pass.finish());
}

/// A pass in which this rank's gradients, of one type, are `gradients`.
template <class Reducer>
void one_pass(communicator& world, Reducer& r, const std::vector<std::vector<float>>& gradients) {
  auto pass = r.begin();
  for (std::size_t i = gradients.size(); i-- > 0;)
    tutti::grad::visit_gradient(r.layout().buckets[0].type, [&]<class T>() {
      const auto g = r.template gradient<T>(i);
      for (std::size_t e = 0; e < g.size(); ++e) g[e] = T(gradients[i][e]);
      pass.ready(i);
    });
  (void)tutti::sync_wait(world, pass.finish());
}

}  // namespace ranks
