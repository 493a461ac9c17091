#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/block.hpp>
#include <tutti/algo/shm/group/memory.hpp>
#include <tutti/algo/shm/group/retune_schedule.hpp>
#include <tutti/core/kernels/copy.hpp>
#include <tutti/core/kernels/lanes.hpp>

namespace tutti::algo {

/// Slots of an shm group, two for each rank, and the method by which ranks stage data in them.
class shm_slots {
 public:
  static constexpr std::size_t slot_bytes = std::size_t{256} << 10;
  static constexpr std::size_t half_bytes = slot_bytes / 2;
  static constexpr std::size_t worth_streaming = retune_schedule::worth_counting;
  static constexpr std::size_t part_bytes = shm_group_memory::slots_at + 2 * slot_bytes;

  /// Method of staging: the kind of stores, and the bytes of each slot through which short messages rotate before they
  /// reuse a place (a power of two).
  struct staging {
    std::size_t rotation = slot_bytes;
    stores how = stores::ordinary;
    friend bool operator==(const staging&, const staging&) = default;
  };
  static constexpr std::size_t long_rotation = std::size_t{2} << 20;
  static constexpr std::size_t long_bytes = shm_group_memory::slots_at + 2 * long_rotation;

  /// Returns the place where `rank` stages `bytes` bytes for a step. Two places in turns are enough: a rank posts a
  /// step only when it has read what it needs of the one before. Messages beyond a few lines rotate through the slot,
  /// because stores into lines that no rank has read lately are cheaper. Shorter messages always use the same place,
  /// whose lines then stay in all caches.
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t step, std::size_t bytes = slot_bytes) const noexcept {
    const std::size_t within = bytes < worth_rotating ? 0 : step / 2 * std::bit_ceil(bytes) & (staging_.rotation - 1);
    return slots_[static_cast<std::size_t>(rank)] + step % 2 * staging_.rotation + within;
  }
  /// Copies into a slot by the current method.
  void stage(std::byte* to, const void* from, std::size_t bytes) noexcept {
    if (staging_.how == stores::streaming && bytes >= worth_streaming)
      copy_streaming(to, from, bytes);
    else
      copy_bytes(to, from, bytes);
  }
  /// Sets the method from the next step on. All ranks must do so before the same step.
  void use(const staging& s) noexcept {
    for (std::size_t r = 0; r < parts_.size(); ++r)
      slots_[r] = (s.rotation == slot_bytes ? parts_ : long_parts_)[r] + shm_group_memory::slots_at;
    staging_ = s;
  }
  [[nodiscard]] const staging& staging_method() const noexcept { return staging_; }
  /// Returns the `bytes` to pass to slot() for a chunk of a message. Chunks of long blocks that all ranks stage
  /// alternate between two places: more room would push the blocks out of a cache that the cores share.
  [[nodiscard]] std::size_t place_for(std::size_t chunk, std::size_t block) const noexcept {
    return block < std::size_t{1} << 20 ? chunk : (std::max)(chunk, staging_.rotation / 2);
  }
  /// Allocates this rank's long slots unless it has them; returns false if there is no memory.
  template <class Link>
  bool make_long(Link& link) noexcept {
    try {
      if (!long_) long_ = link.allocate(long_bytes);
      return true;
    } catch (...) {
      return false;
    }
  }
  template <class Link>
  [[nodiscard]] std::uint64_t long_place(Link& link) const noexcept {
    return *link.locate(long_, long_bytes);
  }
  /// Records the address at which the long slots of `rank` are mapped here.
  void found_long(int rank, std::byte* room) noexcept { long_parts_[static_cast<std::size_t>(rank)] = room; }

 protected:
  /// Adds the part of the next rank.
  void add_part(std::byte* part) {
    parts_.push_back(part);
    slots_.push_back(part + shm_group_memory::slots_at);
    long_parts_.push_back(nullptr);
  }
  [[nodiscard]] const std::vector<std::byte*>& parts() const noexcept { return parts_; }
  [[nodiscard]] std::byte* long_part() const noexcept { return long_; }

 private:
  static constexpr std::size_t worth_rotating = std::size_t{3} << 10;

  std::vector<std::byte*> parts_, slots_, long_parts_;
  std::byte* long_ = nullptr;
  staging staging_{};
};

}  // namespace tutti::algo
