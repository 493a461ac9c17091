#pragma once
#include <cstddef>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/pass/usage.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad::detail {

/// The message of the hosts at the end of a pass on devices, which no device has to know: the step, rank 0's request,
/// and the usage map. One all_reduce of some floats; allocates nothing after reserve().
class host_report {
 public:
  void reserve(std::size_t parameters) { said_.reserve(line_elements<float> + parameters + 1); }

  /// Starts the all_reduce with this rank's part, of a pass with this weight. Called by all ranks.
  template <class Host>
  void send(Host& world, step s, request asked, const usage& used, double weight, const std::source_location& where) {
    said_.assign(line_elements<float> + used.map_count(), 0);
    step_flags::put(s, line(), asked);
    if (used.map_count() != 0) used.put(weight, map());
    static_cast<void>(heard_.emplace(world.all_reduce(said_, sum, {}, where)));
  }
  /// Returns the operation, which the caller must end once; then learn() returns the step of all ranks.
  [[nodiscard]] op take() { return *std::exchange(heard_, std::nullopt); }
  [[nodiscard]] step learn(usage& used) noexcept {
    if (used.map_count() != 0) used.take(std::span<const float>{map()});
    const step all = step_flags::take(std::span<const float>{line()});
    request_ = all == step::apply ? step_flags::take_request(std::span<const float>{line()}) : request::none;
    return all;
  }
  [[nodiscard]] request requested() const noexcept { return request_; }
  /// Drops the operation, after an abort.
  void forget() noexcept { heard_.reset(); }

 private:
  [[nodiscard]] std::span<float> line() noexcept { return std::span{said_}.first(line_elements<float>); }
  [[nodiscard]] std::span<float> map() noexcept { return std::span{said_}.subspan(line_elements<float>); }

  std::vector<float> said_;
  request request_ = request::none;
  std::optional<op> heard_;
};

}  // namespace tutti::grad::detail
