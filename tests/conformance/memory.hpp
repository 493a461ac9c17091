#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include <tutti/backend/mapped_array.hpp>

namespace conformance {

/// Memory for a buffer. Zeroed or not: who asks fills it.
using block_of_memory = std::shared_ptr<std::byte>;

/// Where this rank's buffers come from: each of its own, unless the world's memory is asked for, too.
class memory_of_rank {
 public:
  [[nodiscard]] block_of_memory take(std::size_t bytes) {
    taken_ = taken_ * 6364136223846793005U + 1442695040888963407U;
    if (from_world_ && (taken_ >> 33) % 4 != 0) return from_world_(bytes);
    constexpr std::align_val_t alignment{64};
    return {static_cast<std::byte*>(::operator new(bytes, alignment)),
            [](std::byte* p) { ::operator delete(p, alignment); }};
  }
  /// From now on three buffers of four come from `world`, here others than on other ranks.
  template <class World>
  void mix(World& world) {
    taken_ = static_cast<std::uint64_t>(world.rank());
    from_world_ = [&world](std::size_t bytes) {
      auto array = std::make_shared<tutti::mapped_array<std::byte>>(world.template allocate<std::byte>(bytes));
      std::byte* const data = array->data();
      return block_of_memory{std::move(array), data};
    };
  }

 private:
  std::function<block_of_memory(std::size_t)> from_world_;
  std::uint64_t taken_ = 0;
};

inline thread_local memory_of_rank own_memory;

}  // namespace conformance
