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

/// The usage map: the parameters that the passes of a rank use, and the saved gradients of the others. A gradient that
/// no rank uses gets its old value back. One element for each parameter, in the order of registration, is sent in a
/// tail. If the graph is fixed, one more element counts the ranks that have not learned yet which parameters they use;
/// once it is 0, the map is not sent any more.
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

  /// Returns true once this rank has learned a fixed graph.
  [[nodiscard]] bool learned() const noexcept { return !learnt_.empty(); }
  /// Return true if all passes use a parameter, and if none does, once it has; false for an index that is no
  /// parameter's.
  [[nodiscard]] bool always(std::size_t i) const noexcept { return i < learnt_.size() && learnt_[i] != 0; }
  [[nodiscard]] bool never(std::size_t i) const noexcept { return i < learnt_.size() && learnt_[i] == 0; }
  /// Learns the parameters that this rank uses, if it had samples, after a pass that all ranks apply.
  void learn(double weight) {
    if (kind_ == graph::fixed && learnt_.empty() && weight > 0) learnt_ = mine_;
    settled_ = kind_ == graph::fixed && unknown_ == 0;
  }

  /// Returns the elements of the map; 0 if none is sent.
  [[nodiscard]] std::size_t map_count() const noexcept {
    return how_ == unused_parameters::zero || settled_ ? 0 : mine_.size() + (kind_ == graph::fixed ? 1 : 0);
  }

  /// Sets a gradient to zero, this rank's contribution; saves its value if the map may restore it.
  template <class T>
  void leave_out(std::size_t i, std::span<T> gradient) {
    if (how_ == unused_parameters::tracked)
      keep(i, gradient);
    else
      std::fill(gradient.begin(), gradient.end(), T{});
  }

  /// Sets a gradient to zero, this rank's contribution, and saves its value.
  template <class T>
  void keep(std::size_t i, std::span<T> gradient) {
    kept_.push_back({i, bytes_.size()});
    const auto old = std::as_bytes(gradient);
    bytes_.insert(bytes_.end(), old.begin(), old.end());
    std::fill(gradient.begin(), gradient.end(), T{});
  }

  /// Writes this rank's map, for a pass with this weight.
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

  /// Returns true unless the last pass was tracked and no rank used the parameter.
  [[nodiscard]] bool used_anywhere(std::size_t i) const noexcept { return anyone_[i] != 0; }

  /// Restores the gradients that no rank used, after take().
  void restore(const arena& memory) const;

 private:
  std::vector<char> mine_, anyone_, learnt_;
  unused_parameters how_;
  graph kind_;
  double unknown_ = 0;                                     // ranks that have not learned yet which they use
  bool settled_ = false;                                   // all ranks have learned it
  std::vector<std::pair<std::size_t, std::size_t>> kept_;  // parameter, offset in bytes_
  std::vector<std::byte> bytes_;
};

}  // namespace tutti::grad

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/grad/usage.hpp>
#endif
