#pragma once
#include <cstddef>
#include <cstring>
#include <vector>

#include <tutti/core/kernels/instruction_set.hpp>

namespace kernels {

/// All that this machine can run.
inline std::vector<tutti::instruction_set> levels() {
  std::vector<tutti::instruction_set> all{tutti::instruction_set::baseline};
  if (tutti::detail::cpu_has_avx2()) all.push_back(tutti::instruction_set::avx2);
  if (tutti::detail::cpu_has_avx512()) all.push_back(tutti::instruction_set::avx512);
  if (tutti::detail::cpu_has_avx512_bf16()) all.push_back(tutti::instruction_set::avx512_bf16);
  return all;
}

/// So many bytes, `shift` bytes after the beginning of a line, between margins that nobody may write to.
class memory {
 public:
  memory(std::size_t bytes, std::size_t shift) : bytes_(bytes), shift_(shift), storage_(bytes + 3 * line, pattern) {}
  memory(const memory& other) : memory(other.bytes_, other.shift_) {
    if (bytes_ != 0) std::memcpy(data(), other.data(), bytes_);
  }
  memory(memory&&) = default;
  memory& operator=(const memory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return begin() + shift_ + gap(); }
  [[nodiscard]] bool intact() const noexcept {
    for (const std::byte* p = begin(); p != data(); ++p)
      if (*p != pattern) return false;
    for (const std::byte* p = data() + bytes_; p != begin() + storage_.size(); ++p)
      if (*p != pattern) return false;
    return true;
  }

 private:
  static constexpr std::size_t line = 64;
  static constexpr std::byte pattern{0x5a};
  [[nodiscard]] std::byte* begin() const noexcept { return const_cast<std::byte*>(storage_.data()); }
  [[nodiscard]] std::size_t gap() const noexcept {
    return (line - reinterpret_cast<std::size_t>(begin()) % line) % line;
  }

  std::size_t bytes_, shift_;
  std::vector<std::byte> storage_;
};

}  // namespace kernels
