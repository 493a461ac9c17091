#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <tutti/backend/mapped_array.hpp>
#include <tutti/backend/sim.hpp>
#include <tutti/communicator.hpp>

#include <conformance/operands.hpp>

namespace collective_program {

using conformance::from_int;
using tutti::reduction_kind;
using world_type = tutti::communicator<tutti::sim>;

inline constexpr unsigned char untouched = 0xa5;

/// Elements at an odd place of a buffer that ends with them.
template <class T>
class area {
 public:
  area(world_type& w, std::size_t offset, std::size_t count, bool in_world_memory) : offset_(offset), count_(count) {
    if (in_world_memory)
      mapped_ = w.allocate<T>(offset + count);
    else
      plain_.reset(new T[offset + count]);
    all_ = in_world_memory ? mapped_.data() : plain_.get();
    std::memset(static_cast<void*>(all_), untouched, (offset + count) * sizeof(T));
  }
  [[nodiscard]] std::span<T> span() const { return {all_ + offset_, count_}; }
  [[nodiscard]] bool is_untouched(const T& x) const {
    std::array<unsigned char, sizeof(T)> fresh;
    fresh.fill(untouched);
    return std::memcmp(&x, fresh.data(), sizeof(T)) == 0;
  }
  void check(const char* what) const {
    for (std::size_t i = 0; i < offset_; ++i)
      if (!is_untouched(all_[i])) throw std::runtime_error(std::string(what) + ": wrote before its buffer");
  }

 private:
  std::size_t offset_, count_;
  std::unique_ptr<T[]> plain_;
  tutti::mapped_array<T> mapped_;
  T* all_ = nullptr;
};

template <class T, class Wanted>
void expect(const char* what, std::span<const T> got, Wanted wanted) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (const T w = wanted(i); !(got[i] == w))
      throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " of " +
                               std::to_string(got.size()) + " is " + conformance::to_text(got[i]) + ", not " +
                               conformance::to_text(w));
}

/// A reduction, and what it gives for the first `terms` ranks.
template <class T>
T premultiplied(int terms, std::size_t i, std::uint64_t salt) {
  long long sum = 0;
  for (int r = 0; r < terms; ++r)
    sum += (r + 1) * static_cast<long long>(conformance::operand<T>(reduction_kind::sum, r, i, salt));
  return from_int<T>(sum);
}

}  // namespace collective_program
