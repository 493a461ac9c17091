#pragma once
#include <tutti/algo/chain.hpp>
#include <tutti/algo/coalesced.hpp>
#include <tutti/algo/direct_all_to_all.hpp>
#include <tutti/algo/direct_reduce.hpp>
#include <tutti/algo/direct_rooted.hpp>
#include <tutti/algo/direct_scan.hpp>
#include <tutti/algo/direct_uneven.hpp>
#include <tutti/algo/linear.hpp>
#include <tutti/algo/pairwise.hpp>
#include <tutti/algo/ring_uneven.hpp>
#include <tutti/algo/scan.hpp>
#include <tutti/algo/select.hpp>
#include <tutti/algo/tree_reduce.hpp>
#include <tutti/algo/tree_rooted.hpp>

/// Which routine a collective is, once its algorithm has been chosen: by_memory where that is `direct`, else
/// by_messages.
namespace tutti::algo {

template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const reduce_args& a) {
  return direct_reduce<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const scan_args& a) {
  return direct_scan<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const exclusive_scan_args& a) {
  return direct_exclusive_scan<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const gather_args& a) {
  return direct_gather<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const scatter_args& a) {
  return direct_scatter<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const all_to_all_args& a) {
  return direct_all_to_all<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const all_gather_v_args& a) {
  return direct_all_gather_v<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const reduce_scatter_v_args& a) {
  return direct_reduce_scatter_v<T>(l, b, a);
}
template <mapped_transport T>
routine by_memory(lane<T> l, board& b, const all_reduce_coalesced_args& a) {
  return direct_all_reduce_coalesced<T>(l, b, a);
}

template <message_link L>
routine by_messages(L l, const reduce_args& a, algorithm via) {
  return via == algorithm::ring ? chain_reduce(l, a) : tree_reduce(l, a);
}
template <message_link L>
routine by_messages(L l, const scan_args& a, algorithm via) {
  return via == algorithm::ring ? chain_scan(l, a) : recursive_doubling_scan(l, a);
}
template <message_link L>
routine by_messages(L l, const exclusive_scan_args& a, algorithm via) {
  return via == algorithm::ring ? chain_exclusive_scan(l, a) : recursive_doubling_exclusive_scan(l, a);
}
template <message_link L>
routine by_messages(L l, const gather_args& a, algorithm via) {
  return via == algorithm::tree ? tree_gather(l, a) : linear_gather(l, a);
}
template <message_link L>
routine by_messages(L l, const scatter_args& a, algorithm via) {
  return via == algorithm::tree ? tree_scatter(l, a) : linear_scatter(l, a);
}
template <message_link L>
routine by_messages(L l, const all_to_all_args& a, algorithm) {
  return pairwise_all_to_all(l, a);
}
template <message_link L>
routine by_messages(L l, const all_gather_v_args& a, algorithm) {
  return ring_all_gather_v(l, a);
}
template <message_link L>
routine by_messages(L l, const reduce_scatter_v_args& a, algorithm) {
  return ring_reduce_scatter_v(l, a);
}
template <message_link L>
routine by_messages(L l, const all_reduce_coalesced_args& a, algorithm via) {
  return packed_all_reduce_coalesced(l, a, via);
}

/// The situation with what the message of a collective adds to it. Where ranks need not know how much the others move,
/// that is left at 0.
constexpr situation sized(const all_reduce_args& a, situation s) noexcept {
  s.bytes = a.out.bytes(), s.element = a.out.element_bytes;
  return s;
}
constexpr situation sized(const broadcast_args& a, situation s) noexcept {
  s.bytes = a.data.bytes();
  return s;
}
constexpr situation sized(const reduce_scatter_args& a, situation s) noexcept {
  s.bytes = a.in.bytes(), s.element = a.out.element_bytes;
  return s;
}
constexpr situation sized(const all_gather_args& a, situation s) noexcept {
  s.bytes = a.out.bytes();
  return s;
}
constexpr situation sized(const reduce_args& a, situation s) noexcept {
  s.bytes = a.in.bytes(), s.element = a.in.element_bytes;
  return s;
}
constexpr situation sized(const scan_args& a, situation s) noexcept {
  s.bytes = a.in.bytes(), s.element = a.in.element_bytes;
  return s;
}
constexpr situation sized(const all_reduce_coalesced_args& a, situation s) noexcept {
  s.bytes = a.data.bytes(), s.element = a.data.element_bytes;
  return s;
}
constexpr situation sized(const reduce_scatter_v_args& a, situation s) noexcept {
  s.element = a.out.element_bytes;
  return s;
}
constexpr situation sized(const all_gather_v_args&, const situation& s) noexcept { return s; }
constexpr situation sized(const gather_args& a, situation s) noexcept {
  s.bytes = a.blocks.equal() ? a.in.bytes() * static_cast<std::size_t>(s.world_size) : 0;
  return s;
}
constexpr situation sized(const scatter_args& a, situation s) noexcept {
  s.bytes = a.blocks.equal() ? a.out.bytes() * static_cast<std::size_t>(s.world_size) : 0;
  return s;
}
constexpr situation sized(const all_to_all_args&, const situation& s) noexcept { return s; }

}  // namespace tutti::algo
