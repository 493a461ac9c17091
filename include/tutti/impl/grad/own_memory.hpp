#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/communicator/overlapping.hpp>
#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/grad/own_memory.hpp>

namespace tutti::grad {

namespace detail {

[[noreturn]] inline void refuse_block(std::size_t number, const gradient_block& b, const std::string& why) {
  throw usage_error("reducer: block " + std::to_string(number) + " of the memory of gradients (" +
                    std::to_string(b.count) + " x " + std::string(name(b.type)) + ") " + why);
}

}  // namespace detail

TUTTI_DECL void own_memory::place(const ready_tracker& all) {
  if (!given_) return;
  block_of_.assign(all.size(), 0);
  at_.assign(all.size(), nullptr);
  std::size_t i = 0;
  for (std::size_t k = 0; k < blocks_.size(); ++k) {
    const gradient_block& b = blocks_[k];
    if (b.count != 0 && !b.data) detail::refuse_block(k, b, "is at address 0; pass memory that exists");
    std::size_t used = 0;
    for (; i < all.size() && (used < b.count || all.shapes()[i].count == 0); ++i) {
      const parameter_shape& p = all.shapes()[i];
      if (p.count > b.count - used)
        detail::refuse_block(k, b,
                             "ends inside of " + all.label(i) + ", which has " + std::to_string(p.count) +
                                 " elements, of which " + std::to_string(b.count - used) +
                                 " are there; a block holds whole gradients in the order of the shapes, without "
                                 "gaps");
      if (p.count != 0 && p.type != b.type)
        detail::refuse_block(k, b,
                             "holds " + all.label(i) + ", which is " + std::string(name(p.type)) +
                                 "; give each type a block of its own");
      block_of_[i] = static_cast<int>(k);
      at_[i] = b.data + used * size_of(b.type);
      used += p.count;
    }
    if (used != b.count)
      detail::refuse_block(
          k, b,
          "has " + std::to_string(b.count - used) + " elements behind the last gradient; pass the gradients alone");
  }
  if (const auto rest = std::find_if(all.shapes().begin() + static_cast<std::ptrdiff_t>(i), all.shapes().end(),
                                     [](const parameter_shape& p) { return p.count != 0; });
      rest != all.shapes().end())
    throw usage_error("reducer: the memory of gradients ends before " +
                      all.label(static_cast<std::size_t>(rest - all.shapes().begin())) +
                      "; pass memory for each parameter");
  require_apart();
}

TUTTI_DECL void own_memory::require_apart() const {
  std::vector<std::size_t> bytes, addresses;
  for (const gradient_block& k : blocks_) {
    bytes.push_back(k.bytes());
    addresses.push_back(reinterpret_cast<std::uintptr_t>(k.data));
  }
  if (const auto both = tutti::detail::overlapping(bytes, addresses); both.first != both.second)
    detail::refuse_block(both.second, blocks_[both.second],
                         "overlaps block " + std::to_string(both.first) + "; register a gradient that is shared once");
}

TUTTI_DECL std::vector<gradient_block> own_memory::ranges_of(const bucket& k) const {
  std::vector<bucket_slot> slots = k.slots;
  std::sort(slots.begin(), slots.end(), [](auto& a, auto& b) { return a.parameter < b.parameter; });
  std::vector<gradient_block> found;
  int block = -1;
  for (const bucket_slot& s : slots) {
    const auto i = static_cast<std::size_t>(s.parameter);
    if (s.count == 0) continue;
    if (block == block_of_[i] && at_[i] == found.back().data + found.back().bytes()) {
      found.back().count += s.count;
    } else {
      gradient_block& fresh = found.emplace_back();
      fresh.data = at_[i];
      fresh.count = s.count;
      fresh.type = k.type;
    }
    block = block_of_[i];
  }
  return found;
}

TUTTI_DECL std::uint64_t own_memory::id() const noexcept {
  if (!given_) return 0;
  std::uint64_t hash = tutti::detail::fnv_start;
  for (const int b : block_of_) hash = tutti::detail::fnv(hash, static_cast<std::uint64_t>(b));
  return hash;
}

}  // namespace tutti::grad
