#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/op.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// Memory that is not touched yet, of large pages where the kernel has them.
class large_pages {
 public:
  explicit large_pages(std::size_t bytes)
      : bytes_(bytes), memory_(static_cast<std::uint8_t*>(::operator new(bytes, alignment))) {
    (void)::madvise(memory_.get(), bytes, MADV_HUGEPAGE);  // only faster
  }
  [[nodiscard]] std::span<std::uint8_t> span() const noexcept { return {memory_.get(), bytes_}; }

 private:
  static constexpr std::align_val_t alignment{std::size_t{2} << 20};
  struct release {
    void operator()(std::uint8_t* p) const noexcept { ::operator delete(p, alignment); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, release> memory_;
};

/// More elements than an int can count, one algorithm after the other: 4 GiB of memory for a world of two.
template <class World>
void check_large(World& world, const ways& candidates) {
  constexpr std::size_t count = (std::size_t{1} << 31) + 3;
  session<World> s{world};
  const large_pages memory{count};  // once for all: fresh pages cost as much time as the rest
  const std::span<std::uint8_t> v = memory.span();
  const std::size_t marks[] = {0, std::numeric_limits<std::int32_t>::max(), count / 2 - 1, count / 2, count - 1};
  for (const auto via : candidates) {
    const which c = s.name("all_reduce", count, "uint8", via);
    std::fill(v.begin(), v.end(), static_cast<std::uint8_t>(world.rank() + 1));
    for (const std::size_t i : marks) v[i] = static_cast<std::uint8_t>(10 * (world.rank() + 1));
    world.all_reduce(v, tutti::sum, {.via = via}).wait();
    const int n = world.size() * (world.size() + 1) / 2;
    for (const std::size_t i : marks) {
      expect(v[i] == 10 * n, c, "element " + std::to_string(i) + " is " + std::to_string(v[i]));
      v[i] = static_cast<std::uint8_t>(n);
    }
    expect_equal(c, v, [&](std::size_t) { return static_cast<std::uint8_t>(n); });
  }
}

}  // namespace conformance
