#pragma once
#include <cstddef>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/step.hpp>
#include <tutti/grad/usage.hpp>

namespace tutti::grad::detail {

/// What the hosts of all ranks tell each other as a pass on devices ends, which no device has to know: the step, rank
/// 0's wish, and the map of what was used. One all_reduce of some floats; no memory is taken after reserve().
class host_report {
 public:
  void reserve(std::size_t parameters) { said_.reserve(line_elements<float> + parameters + 1); }

  /// This rank's part, of a pass with this weight. All ranks.
  template <class Host>
  void send(Host& world, step s, wish w, const usage& used, double weight, const std::source_location& where) {
    said_.assign(line_elements<float> + used.map_count(), 0);
    step_flags::put(s, line(), w);
    if (used.map_count() != 0) used.put(weight, map());
    static_cast<void>(heard_.emplace(world.all_reduce(said_, sum, {}, where)));
  }
  /// To be ended by its caller, once; then step and map are those of all.
  [[nodiscard]] op take() { return *std::exchange(heard_, std::nullopt); }
  [[nodiscard]] step learn(usage& used) noexcept {
    if (used.map_count() != 0) used.take(std::span<const float>{map()});
    const step all = step_flags::take(std::span<const float>{line()});
    wish_ = all == step::apply ? step_flags::take_wish(std::span<const float>{line()}) : wish::none;
    return all;
  }
  [[nodiscard]] wish wished() const noexcept { return wish_; }
  /// After an abort.
  void forget() noexcept { heard_.reset(); }

 private:
  [[nodiscard]] std::span<float> line() noexcept { return std::span{said_}.first(line_elements<float>); }
  [[nodiscard]] std::span<float> map() noexcept { return std::span{said_}.subspan(line_elements<float>); }

  std::vector<float> said_;
  wish wish_ = wish::none;
  std::optional<op> heard_;
};

}  // namespace tutti::grad::detail
