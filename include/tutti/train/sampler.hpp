#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/train/permutation.hpp>

namespace tutti::train {

/// The order in which an epoch visits the samples.
enum class sample_order : std::uint8_t {
  shuffled,   ///< another order in every epoch, as in torch
  sequential  ///< 0, 1, 2, …
};

/// The treatment of the last samples of an epoch if their number is not a multiple of the number of ranks.
enum class leftover : std::uint8_t {
  pad,   ///< repeats the first samples of the order, so that all ranks have equally many: for training
  drop,  ///< leaves them out of this epoch
  keep   ///< every sample exactly once, so some ranks have one less: for evaluation
};

struct sampler_options {
  sample_order order = sample_order::shuffled;
  leftover rest = leftover::pad;
  std::uint64_t seed = 0;  ///< equal on all ranks; an epoch is shuffled by seed + epoch
};

/// The position of a sampler: equal on all ranks that have made the same calls of take(). Save it to resume with any
/// number of ranks.
struct sampler_state {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch that all ranks together have taken

  friend constexpr bool operator==(const sampler_state&, const sampler_state&) = default;
  friend constexpr auto operator<=>(const sampler_state&, const sampler_state&) = default;
};

/// A sampler: divides the indices of samples among ranks. Rank r of n gets every n-th index of the epoch's order, from
/// the r-th on. With `pad` and `drop`, the indices are those of torch's DistributedSampler for equal seed, epoch and
/// ranks. Not collective: it sends nothing, but all ranks must construct it with equal options and call set_epoch()
/// alike. One thread at a time. Memory: 8 bytes for each sample of this rank; while an epoch is shuffled, also 4 bytes
/// for each sample of all ranks, or 8 if there are 2^32 or more.
class sampler {
 public:
  /// Divides `samples` samples among `ranks` ranks, as seen by rank `rank`, and starts at epoch 0. Errors: usage_error
  /// unless 0 <= rank < ranks.
  sampler(std::size_t samples, int rank, int ranks, sampler_options options = {})
      : samples_(samples), rank_(rank), ranks_(ranks), options_(options) {
    check_rank(rank, ranks);
    deal();
  }
  template <class Comm>
    requires requires(const Comm& c) { c.rank() + c.size(); }
  sampler(std::size_t samples, const Comm& world, sampler_options options = {})
      : sampler(samples, world.rank(), world.size(), options) {}

  /// Returns a sampler for evaluation: sequential, every sample exactly once over all ranks.
  template <class Comm>
  static sampler exact(std::size_t samples, const Comm& world) {
    return {samples, world, {sample_order::sequential, leftover::keep, 0}};
  }
  static sampler exact(std::size_t samples, int rank, int ranks) {
    return {samples, rank, ranks, {sample_order::sequential, leftover::keep, 0}};
  }

  /// Starts an epoch, with its order. Call it before each epoch; take() does not start one.
  void set_epoch(std::uint64_t epoch) { resume({epoch, 0}); }

  /// Returns the next samples of this rank: `most`, or those left in the epoch. Valid until set_epoch() or resume().
  /// With `keep`, all ranks must call it equally often, even those that have no samples left, so that state() is equal.
  std::span<const std::uint64_t> take(std::size_t most) noexcept {
    const auto some = std::span{mine_}.last(left()).first((std::min)(most, left()));
    asked_ += (std::min)(most, share_of(0) - asked_);
    return some;
  }

  /// Return the number of samples of this rank, from the position at which the epoch was started or resumed, and the
  /// number of those that it has not taken.
  [[nodiscard]] std::size_t size() const noexcept { return mine_.size(); }
  [[nodiscard]] std::size_t left() const noexcept { return mine_.size() - (std::min)(asked_, mine_.size()); }
  /// Returns the number of batches of the rank with the most samples, of those that size() counts. All ranks should
  /// take as many steps; with `keep`, the last take() may be empty on some. Errors: usage_error for a batch of 0.
  [[nodiscard]] std::size_t batches(std::size_t batch) const {
    if (batch == 0) throw usage_error("sampler: batches of 0 samples; give at least 1");
    const std::size_t longest = share_of(0);
    return longest / batch + (longest % batch != 0 ? 1 : 0);
  }

  /// Returns the position after the calls of take() so far.
  [[nodiscard]] sampler_state state() const noexcept {
    return {epoch_, std::min<std::uint64_t>(samples_, begin_ + asked_ * static_cast<std::size_t>(ranks_))};
  }
  /// Continues from the state of a sampler with equal samples and options, and any number of ranks: divides the samples
  /// that were not taken. If the ranks' states may differ, since one was lost, all must resume from the smallest, by <.
  /// Errors: usage_error for a position beyond the samples, or unless 0 <= rank < ranks; nothing has changed then.
  void resume(sampler_state from, int rank, int ranks) {
    check_rank(rank, ranks);
    if (from.position > samples_)
      throw usage_error("sampler: resumed at sample " + std::to_string(from.position) + " of " +
                        std::to_string(samples_) + "; the state is that of another data set");
    rank_ = rank;
    ranks_ = ranks;
    epoch_ = from.epoch;
    begin_ = from.position;
    asked_ = 0;
    deal();
  }
  void resume(sampler_state from) { resume(from, rank_, ranks_); }
  template <class Comm>
    requires requires(const Comm& c) { c.rank() + c.size(); }
  void resume(sampler_state from, const Comm& world) {
    resume(from, world.rank(), world.size());
  }

 private:
  static void check_rank(int rank, int ranks) {
    if (rank < 0 || rank >= ranks)
      throw usage_error("sampler: rank " + std::to_string(rank) + " is not in a world of " + std::to_string(ranks));
  }

  /// Returns the number of samples of a rank, from the position at which the epoch was started or resumed.
  [[nodiscard]] std::size_t share_of(int rank) const noexcept {
    const std::size_t rest = samples_ - begin_, n = static_cast<std::size_t>(ranks_), more = rest % n;
    switch (options_.rest) {
      case leftover::drop:
        return rest / n;
      case leftover::keep:
        return rest / n + (static_cast<std::size_t>(rank) < more ? 1 : 0);
      case leftover::pad:
        break;
    }
    return rest / n + (more != 0 ? 1 : 0);
  }

  void deal() {
    if (options_.order == sample_order::sequential)
      pick([](std::size_t at) { return at; });
    else if (samples_ <= (std::numeric_limits<std::uint32_t>::max)())
      pick_shuffled<std::uint32_t>();
    else
      pick_shuffled<std::uint64_t>();
  }
  template <class Index>
  void pick_shuffled() {
    std::vector<Index> order(samples_);
    permute(std::span{order}, options_.seed + epoch_);
    pick([&](std::size_t at) { return order[at]; });
  }
  template <class At>
  void pick(At at) {
    mine_.resize(share_of(rank_));
    // Padding continues at the beginning of the epoch's order, as in torch, even if the epoch was resumed.
    std::size_t place = begin_ + static_cast<std::size_t>(rank_);
    for (std::uint64_t& i : mine_) {
      i = at(place % samples_);
      place += static_cast<std::size_t>(ranks_);
    }
  }

  std::size_t samples_;
  int rank_, ranks_;
  sampler_options options_;
  std::uint64_t epoch_ = 0;
  std::size_t begin_ = 0;
  std::size_t asked_ = 0;  // samples requested by take(); at most those of the rank with the most
  std::vector<std::uint64_t> mine_;
};

}  // namespace tutti::train
