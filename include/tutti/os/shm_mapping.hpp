#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <span>
#include <utility>

#include <tutti/config.hpp>

namespace tutti::os {

/// A range of mapped memory, owned; unmapped by the destructor. May outlive the segment that it maps.
class shm_mapping {
 public:
  shm_mapping() noexcept = default;
  shm_mapping(void* mapped, std::size_t bytes) noexcept : data_(static_cast<std::byte*>(mapped)), bytes_(bytes) {}
  shm_mapping(shm_mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  shm_mapping& operator=(shm_mapping&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~shm_mapping() { unmap(); }

  void unmap() noexcept {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_, bytes_}; }
  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::os
