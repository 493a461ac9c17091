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
  shuffled,   ///< anew in every epoch, as torch does
  sequential  ///< 0, 1, 2, …
};

/// What becomes of samples that are not one for each rank.
enum class leftover : std::uint8_t {
  pad,   ///< the first samples again, so that all ranks have equally many: for training
  drop,  ///< left out of this epoch
  keep   ///< every sample exactly once; some ranks have one less: for evaluation
};

struct sampler_options {
  sample_order order = sample_order::shuffled;
  leftover rest = leftover::pad;
  std::uint64_t seed = 0;  ///< equal on all ranks; that of an epoch is seed + epoch
};

/// The position of a sampler in its epochs: equal on all ranks that have made the same calls of take(). Save it to
/// resume with any number of ranks.
struct sampler_state {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< samples of the epoch's order that all ranks together have taken

  friend constexpr bool operator==(const sampler_state&, const sampler_state&) = default;
  friend constexpr auto operator<=>(const sampler_state&, const sampler_state&) = default;
};

/// Divides the numbers of samples among ranks: rank r of n gets every n-th one of the epoch's order, from the r-th on.
/// With `pad` and `drop`, bit for bit what torch's DistributedSampler gives for the same seed, epoch and ranks.
/// Talks to nobody: all ranks make it with the same options and call set_epoch() alike. One thread at a time.
/// Memory: 8 bytes for each sample of this rank; while an epoch is shuffled, 4 or 8 for each sample of all.
class sampler {
 public:
  /// `samples` are all there are; `rank` and `ranks` as in a communicator. Errors: usage_error for no such rank.
  sampler(std::size_t samples, int rank, int ranks, sampler_options options = {})
      : samples_(samples), rank_(rank), ranks_(ranks), options_(options) {
    check_rank(rank, ranks);
    deal();
  }
  template <class Comm>
    requires requires(const Comm& c) { c.rank() + c.size(); }
  sampler(std::size_t samples, const Comm& world, sampler_options options = {})
      : sampler(samples, world.rank(), world.size(), options) {}

  /// For evaluation: in order, every sample exactly once over all ranks.
  template <class Comm>
  static sampler exact(std::size_t samples, const Comm& world) {
    return {samples, world, {sample_order::sequential, leftover::keep, 0}};
  }
  static sampler exact(std::size_t samples, int rank, int ranks) {
    return {samples, rank, ranks, {sample_order::sequential, leftover::keep, 0}};
  }

  /// Goes to the start of an epoch. Without it, every epoch has the order of the first.
  void set_epoch(std::uint64_t epoch) { resume({epoch, 0}); }

  /// The next samples of this rank: `most`, or what is left of the epoch. Valid until the epoch or the ranks change.
  /// With `keep`, all ranks call it equally often, also one that has nothing left: state() tells where all ranks are.
  std::span<const std::uint64_t> take(std::size_t most) noexcept {
    const auto some = std::span{mine_}.last(left()).first((std::min)(most, left()));
    asked_ += (std::min)(most, share_of(0) - asked_);
    return some;
  }

  /// Samples of this rank, from where the epoch began or was resumed; and those that it has not taken yet.
  [[nodiscard]] std::size_t size() const noexcept { return mine_.size(); }
  [[nodiscard]] std::size_t left() const noexcept { return mine_.size() - (std::min)(asked_, mine_.size()); }
  /// How many batches the rank with the most samples takes, counted as size() is: all ranks do as many steps, and with
  /// `keep` the last take() may be empty on some.
  [[nodiscard]] std::size_t batches(std::size_t batch) const {
    if (batch == 0) throw usage_error("sampler: batches of 0 samples; give at least 1");
    const std::size_t longest = share_of(0);
    return longest / batch + (longest % batch != 0 ? 1 : 0);
  }

  [[nodiscard]] sampler_state state() const noexcept {
    return {epoch_, std::min<std::uint64_t>(samples_, begin_ + asked_ * static_cast<std::size_t>(ranks_))};
  }
  /// Goes on from a state with these samples and options, and any number of ranks: what was not taken is divided anew.
  /// Where ranks may have taken unequally many (one was lost), all resume from the least: states are compared with <.
  /// Errors: usage_error for a position beyond the samples, and for no such rank; nothing has changed then.
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

  /// The samples that a rank has of those that are left.
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
    // Past the end, the start of the epoch's order: as torch pads, also when the epoch was resumed.
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
  std::size_t asked_ = 0;  // for so many; no more than the rank with the most has
  std::vector<std::uint64_t> mine_;
};

}  // namespace tutti::train
