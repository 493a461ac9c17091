#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/reducer_options.hpp>

namespace tutti::grad {

/// Which parameters the passes of a rank use, and the gradients of those that they do not: a gradient that no rank uses
/// gets back what it held. One element for each parameter, in the order of registration, travels in a tail. Where the
/// graph is fixed, one more counts the ranks that have not learnt yet what they use, and with none of them left the map
/// has travelled for the last time.
class usage {
 public:
  explicit usage(std::size_t parameters, unused_parameters how = unused_parameters::tracked,
                 graph kind = graph::dynamic)
      : mine_(parameters), anyone_(parameters, char{1}), how_(how), kind_(kind) {}

  /// Forgets the last pass.
  void clear() noexcept {
    std::fill(mine_.begin(), mine_.end(), char{0});
    kept_.clear();
    bytes_.clear();
  }

  void use(std::size_t i) noexcept { mine_[i] = 1; }
  [[nodiscard]] bool used_here(std::size_t i) const noexcept { return mine_[i] != 0; }

  /// Of a fixed graph that this rank has learnt: what all passes use, and what none does.
  [[nodiscard]] bool always(std::size_t i) const noexcept { return !learnt_.empty() && learnt_[i] != 0; }
  [[nodiscard]] bool never(std::size_t i) const noexcept { return !learnt_.empty() && learnt_[i] == 0; }
  /// After a pass that all ranks apply: this is what this rank uses, if it had samples.
  void learn(double weight) {
    if (kind_ == graph::fixed && learnt_.empty() && weight > 0) learnt_ = mine_;
    settled_ = kind_ == graph::fixed && unknown_ == 0;
  }

  /// Elements of the map; 0 where none travels.
  [[nodiscard]] std::size_t map_count() const noexcept {
    return how_ == unused_parameters::zero || settled_ ? 0 : mine_.size() + (kind_ == graph::fixed ? 1 : 0);
  }

  /// Makes a gradient zero, which is what this rank contributes; keeps what it was where the map may say so.
  template <class T>
  void leave_out(std::size_t i, std::span<T> gradient) {
    if (how_ == unused_parameters::tracked)
      keep(i, gradient);
    else
      std::fill(gradient.begin(), gradient.end(), T{});
  }

  /// Sets a gradient to zero, which is what this rank contributes, and keeps what it was.
  template <class T>
  void keep(std::size_t i, std::span<T> gradient) {
    kept_.push_back({i, bytes_.size()});
    const auto old = std::as_bytes(gradient);
    bytes_.insert(bytes_.end(), old.begin(), old.end());
    std::fill(gradient.begin(), gradient.end(), T{});
  }

  /// Writes this rank's map, of a pass with this weight.
  template <class T>
  void put(double weight, std::span<T> map) const noexcept {
    for (std::size_t i = 0; i < mine_.size(); ++i) map[i] = T(static_cast<float>(mine_[i]));
    if (kind_ == graph::fixed) map[mine_.size()] = T(learnt_.empty() && !(weight > 0) ? 1.0f : 0.0f);
  }
  template <class T>
  void take(std::span<const T> map) noexcept {
    for (std::size_t i = 0; i < anyone_.size(); ++i) anyone_[i] = static_cast<double>(map[i]) != 0;
    if (kind_ == graph::fixed) unknown_ = static_cast<double>(map[mine_.size()]);
  }

  /// True unless the last pass was tracked and no rank used it.
  [[nodiscard]] bool used_anywhere(std::size_t i) const noexcept { return anyone_[i] != 0; }

  /// After take(): puts back the gradients that no rank used.
  void restore(const arena& memory) const;

 private:
  std::vector<char> mine_, anyone_, learnt_;
  unused_parameters how_;
  graph kind_;
  double unknown_ = 0;                                     // ranks that did not know yet what they use
  bool settled_ = false;                                   // all of them do
  std::vector<std::pair<std::size_t, std::size_t>> kept_;  // parameter, place in bytes_
  std::vector<std::byte> bytes_;
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/usage.hpp>
#endif
