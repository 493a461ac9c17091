#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>

namespace tutti::grad {

/// Writer of a hook's state as bytes, for a checkpoint of one rank: to be read by the same version on a machine of the
/// same kind.
class state_writer {
 public:
  void put(std::uint64_t n) { append(&n, sizeof n); }
  void put(std::span<const float> values) {
    put(values.size());
    append(values.data(), values.size_bytes());
  }
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  void append(const void* from, std::size_t n) {
    const auto* p = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), p, p + n);
  }
  std::vector<std::byte> bytes_;
};

/// Reader of the bytes of state_writer; throws usage_error for anything else.
class state_reader {
 public:
  explicit state_reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  std::uint64_t number() {
    std::uint64_t n = 0;
    read(&n, sizeof n);
    return n;
  }
  std::vector<float> floats() {
    const std::uint64_t n = number();
    if (n > rest_.size() / sizeof(float)) refuse();
    std::vector<float> values(n);
    read(values.data(), n * sizeof(float));
    return values;
  }
  void end() const {
    if (!rest_.empty()) refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw usage_error("the saved state of a hook is damaged, or of another hook; start without it");
  }
  void read(void* to, std::size_t n) {
    if (n > rest_.size()) refuse();
    if (n != 0) std::memcpy(to, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }
  std::span<const std::byte> rest_;
};

/// The remainders that a hook's compression left out, by bucket, to be added in the next pass (error feedback; Seide et
/// al., 1-bit SGD, 2014). In units of weight x gradient, so weights should not differ much between passes.
class residuals {
 public:
  /// Returns the remainders of one bucket; zeros at first, and after its size has changed.
  [[nodiscard]] std::span<float> of(std::size_t bucket, std::size_t count) {
    if (all_.size() <= bucket) all_.resize(bucket + 1);
    if (all_[bucket].size() != count) all_[bucket].assign(count, 0.0f);
    return all_[bucket];
  }
  void reset() noexcept { all_.clear(); }

  /// Sets infinities and NaNs to 0, which would otherwise stay forever.
  static void drop_non_finite(std::span<float> r) noexcept {
    constexpr float most = (std::numeric_limits<float>::max)();
    for (float& x : r)
      if (!(x >= -most && x <= most)) x = 0;
  }

  void save(state_writer& to) const {
    to.put(all_.size());
    for (const auto& r : all_) to.put(std::span<const float>{r});
  }
  void load(state_reader& from) {
    std::vector<std::vector<float>> read;
    for (std::uint64_t n = from.number(); n > 0; --n) read.push_back(from.floats());
    all_ = std::move(read);
  }

 private:
  std::vector<std::vector<float>> all_;
};

}  // namespace tutti::grad
