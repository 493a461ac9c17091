#pragma once
#include <cstddef>

#include <tutti/algo/selection/problem.hpp>
#include <tutti/core/args.hpp>

namespace tutti::algo {

/// Returns the situation with the size of a collective's message added. The bytes stay 0 if not all ranks know them, or
/// if no choice depends on them, as with blocks of any lengths.
constexpr problem sized(const all_reduce_args& a, problem s) noexcept {
  s.bytes = a.out.bytes();
  s.element = a.out.element_bytes;
  return s;
}
constexpr problem sized(const broadcast_args& a, problem s) noexcept {
  s.bytes = a.data.bytes();
  return s;
}
constexpr problem sized(const reduce_scatter_args& a, problem s) noexcept {
  s.bytes = a.in.bytes();
  s.element = a.out.element_bytes;
  return s;
}
constexpr problem sized(const all_gather_args& a, problem s) noexcept {
  s.bytes = a.out.bytes();
  return s;
}
constexpr problem sized(const reduce_args& a, problem s) noexcept {
  s.bytes = a.in.bytes();
  s.element = a.in.element_bytes;
  return s;
}
constexpr problem sized(const scan_args& a, problem s) noexcept {
  s.bytes = a.in.bytes();
  s.element = a.in.element_bytes;
  return s;
}
constexpr problem sized(const all_reduce_coalesced_args& a, problem s) noexcept {
  s.bytes = a.data.bytes();
  s.element = a.data.element_bytes;
  return s;
}
constexpr problem sized(const reduce_scatter_v_args& a, problem s) noexcept {
  s.element = a.out.element_bytes;
  return s;
}
constexpr problem sized(const all_gather_v_args&, const problem& s) noexcept { return s; }
constexpr problem sized(const gather_args& a, problem s) noexcept {
  s.bytes = a.blocks.equal() ? a.in.bytes() * static_cast<std::size_t>(s.world_size) : 0;
  return s;
}
constexpr problem sized(const scatter_args& a, problem s) noexcept {
  s.bytes = a.blocks.equal() ? a.out.bytes() * static_cast<std::size_t>(s.world_size) : 0;
  return s;
}
constexpr problem sized(const all_to_all_args&, const problem& s) noexcept { return s; }

}  // namespace tutti::algo
