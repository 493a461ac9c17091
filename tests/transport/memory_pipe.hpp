#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <span>

#include <tutti/core/status.hpp>
#include <tutti/transport/messaging/channel.hpp>

// A pipe through this process's memory that is as awkward as a test wants it.

namespace drive {

struct wire {
  std::deque<std::byte> bytes;
  std::size_t capacity = std::numeric_limits<std::size_t>::max();
};

struct pipe_manners {
  std::size_t grain = 4096;  // moves at most so many bytes at a time
  bool stutter = false;      // moves nothing every other time
  tutti::status broken{};    // moves nothing any more
  int opened = 0;
};

class memory_pipe {
 public:
  memory_pipe(wire& out, wire& in, pipe_manners& m) noexcept : out_(&out), in_(&in), manners_(&m) {}

  std::size_t write(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
    std::size_t left = std::min(allowance(skip_write_), out_->capacity - std::min(out_->capacity, out_->bytes.size()));
    std::size_t moved = 0;
    for (const auto part : {a, b}) {
      const std::size_t n = std::min(left, part.size());
      out_->bytes.insert(out_->bytes.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n));
      left -= n;
      moved += n;
    }
    return moved;
  }
  std::size_t read(std::span<std::byte> into) noexcept {
    const std::size_t n = std::min({allowance(skip_read_), into.size(), in_->bytes.size()});
    std::copy_n(in_->bytes.begin(), n, into.begin());
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  [[nodiscard]] tutti::status failure() const noexcept { return manners_->broken; }
  void open() noexcept { ++manners_->opened; }

 private:
  std::size_t allowance(bool& skip) noexcept {
    if (!manners_->broken.ok()) return 0;
    if (manners_->stutter && (skip = !skip)) return 0;
    return manners_->grain;
  }

  wire* out_;
  wire* in_;
  pipe_manners* manners_;
  bool skip_read_ = false, skip_write_ = false;
};

}  // namespace drive
