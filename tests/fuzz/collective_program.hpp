#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/core/layout.hpp>
#include <tutti/core/options.hpp>
#include <tutti/transport/sim/options.hpp>

/// What bytes of a fuzzer mean: a world, and the collectives and messages of all of its ranks.
namespace collective_program {

/// Zeros when there is nothing left: every input is a program.
class bytes {
 public:
  explicit bytes(std::span<const std::uint8_t> data) : data_(data) {}
  [[nodiscard]] bool empty() const noexcept { return data_.empty(); }
  std::size_t take() noexcept {
    if (data_.empty()) return 0;
    const std::size_t b = data_.front();
    data_ = data_.subspan(1);
    return b;
  }
  std::size_t below(std::size_t n) noexcept { return take() % n; }

 private:
  std::span<const std::uint8_t> data_;
};

enum class call : std::uint8_t {
  barrier,
  all_reduce,
  prepared_all_reduce,
  all_reduce_coalesced,
  reduce,
  reduce_scatter,
  reduce_scatter_v,
  scan,
  exclusive_scan,
  broadcast,
  text,
  all_gather,
  all_gather_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  messages,
  messages_to_any,
  calls
};

struct step {
  call what = call::barrier;
  std::size_t type = 0, reduction = 0;  // of the player's lists
  tutti::algorithm via = tutti::algorithm::automatic;
  tutti::reduction_order order = tutti::reduction_order::any;
  int root = 0;
  bool in_place = false, in_world_memory = false, backwards = false;
  std::size_t count = 0, offset_in = 0, offset_out = 0;
  std::vector<std::size_t> lengths;  // [from * ranks + to]; of blocks that everyone knows, [r]
  std::size_t gaps = 0;              // a few bits for each block
  std::uint64_t salt = 0;
};

struct program {
  int ranks = 1;
  tutti::sim_options how;
  bool in_flight = false;  // all at once
  std::vector<step> steps;
};

/// Mostly short, as short messages find as many mistakes in less time; up to several slots and several pieces.
inline std::size_t count_from(bytes& in) {
  const std::size_t b = in.take();
  if (b < 220) return b % 20;
  if (b < 253) return 30 + 41 * (b - 220);
  return b == 253 ? 5003 : b == 254 ? 20'011 : 70'003;
}

inline program read(std::span<const std::uint8_t> data) {
  bytes in{data};
  program p;
  p.ranks = 1 + static_cast<int>(in.below(6));
  const std::size_t world = in.take();
  p.how.memory = world % 2 == 0 ? tutti::sim_memory::shared : tutti::sim_memory::separate;
  p.in_flight = world / 2 % 2 != 0;
  p.how.seed = in.take();
  const auto n = static_cast<std::size_t>(p.ranks);
  do {
    step s;
    s.salt = p.steps.size() + 1;
    s.what = static_cast<call>(in.below(static_cast<std::size_t>(call::calls)));
    s.type = in.take();
    s.reduction = in.take();
    s.via = static_cast<tutti::algorithm>(in.below(12));  // one that does not exist is refused, too
    s.root = static_cast<int>(in.below(n));
    const std::size_t flags = in.take();
    s.in_place = flags % 2 != 0;
    s.in_world_memory = flags / 2 % 2 != 0;
    s.backwards = flags / 4 % 2 != 0;
    if (flags / 16 % 2 != 0) s.order = tutti::reduction_order::rank;
    s.gaps = flags / 8 % 2 != 0 ? 0 : in.take() * 0x01010101 + 1;
    s.count = count_from(in);
    s.offset_in = in.below(19);
    s.offset_out = in.below(19);
    const bool table = s.what == call::all_to_all_v;
    const std::size_t longest = in.below(n);
    for (std::size_t i = 0; i < (table ? n * n : n); ++i)
      s.lengths.push_back(i == longest ? count_from(in) : in.below(3) == 0 ? 0 : in.below(50));
    p.steps.push_back(std::move(s));
  } while (!in.empty() && p.steps.size() < 4);
  return p;
}

/// Blocks of these lengths in a buffer, one behind the other or with gaps, which differ from rank to rank.
struct blocks {
  std::vector<std::size_t> counts, offsets;
  std::size_t total = 0;

  blocks(const step& s, std::vector<std::size_t> lengths, std::size_t rank) : counts(std::move(lengths)) {
    const std::size_t n = counts.size();
    if (s.gaps != 0) offsets.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t r = s.backwards && s.gaps != 0 ? n - 1 - i : i;
      if (s.gaps != 0) offsets[r] = total += s.gaps >> (2 * i + rank) & 3;
      total += counts[r];
    }
    if (s.gaps != 0) total += s.gaps % 5;
  }
  [[nodiscard]] tutti::layout layout() const {
    return offsets.empty() ? tutti::layout{counts} : tutti::layout{counts, offsets};
  }
  template <class T>
  [[nodiscard]] std::span<T> of(std::span<T> all, std::size_t r) const {
    return all.subspan(layout().begin(r), counts[r]);
  }
  /// Element i of the buffer belongs to no block.
  [[nodiscard]] bool between(std::size_t i) const {
    for (std::size_t r = 0; r < counts.size(); ++r)
      if (const std::size_t begin = layout().begin(r); i >= begin && i - begin < counts[r]) return false;
    return true;
  }
};

}  // namespace collective_program
