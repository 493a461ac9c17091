#pragma once
#include <tutti/algo/decision.hpp>
#include <tutti/algo/hierarchical/all_reduce.hpp>
#include <tutti/algo/hierarchical/blocks.hpp>
#include <tutti/algo/hierarchical/node_group.hpp>
#include <tutti/algo/hierarchical/tree.hpp>
#include <tutti/algo/message/all_reduce.hpp>
#include <tutti/algo/message/bruck.hpp>
#include <tutti/algo/message/chain.hpp>
#include <tutti/algo/message/chain_broadcast.hpp>
#include <tutti/algo/message/coalesced.hpp>
#include <tutti/algo/message/linear.hpp>
#include <tutti/algo/message/pairwise.hpp>
#include <tutti/algo/message/pairwise_reduce.hpp>
#include <tutti/algo/message/ring.hpp>
#include <tutti/algo/message/ring_v.hpp>
#include <tutti/algo/message/scan.hpp>
#include <tutti/algo/message/tree.hpp>
#include <tutti/algo/message/tree_gather_scatter.hpp>
#include <tutti/algo/message/tree_reduce.hpp>
#include <tutti/algo/shm/all_gather.hpp>
#include <tutti/algo/shm/all_reduce.hpp>
#include <tutti/algo/shm/all_to_all.hpp>
#include <tutti/algo/shm/broadcast.hpp>
#include <tutti/algo/shm/gather_scatter.hpp>
#include <tutti/algo/shm/reduce.hpp>
#include <tutti/algo/shm/scan.hpp>
#include <tutti/algo/shm/v.hpp>

/// Dispatch from arguments and algorithm to a coroutine: run_shm() for `direct`, which also continues what
/// algo/shm/inline_path.hpp has begun, run_hierarchical() for `hierarchical`, run_messages() for all others.
namespace tutti::algo {

template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const all_reduce_args& a, progress so_far = progress::nothing) {
  return direct_all_reduce<T>(l, shm, a, so_far);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const broadcast_args& a) {
  return direct_broadcast<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const reduce_scatter_args& a) {
  return direct_reduce_scatter<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const all_gather_args& a) {
  return direct_all_gather<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const reduce_args& a) {
  return direct_reduce<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const scan_args& a) {
  return direct_scan<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const exclusive_scan_args& a) {
  return direct_exclusive_scan<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const gather_args& a) {
  return direct_gather<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const scatter_args& a) {
  return direct_scatter<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const all_to_all_args& a) {
  return direct_all_to_all<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const all_gather_v_args& a) {
  return direct_all_gather_v<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const reduce_scatter_v_args& a) {
  return direct_reduce_scatter_v<T>(l, shm, a);
}
template <mapped_transport T>
routine run_shm(group_link<T> l, shm_group& shm, const all_reduce_coalesced_args& a) {
  return direct_all_reduce_coalesced<T>(l, shm, a);
}
template <mapped_transport T, class Args>
routine run_shm(group_link<T> l, shm_group& shm, const Args& a, progress) {
  return run_shm<T>(l, shm, a);
}

template <mapped_transport T>
routine run_hierarchical(group_link<T> l, node_group& memory, const all_reduce_args& a) {
  return hierarchical_all_reduce<T>(l, memory, a);
}
template <mapped_transport T>
routine run_hierarchical(group_link<T> l, node_group& memory, const broadcast_args& a) {
  return hierarchical_broadcast<T>(l, memory, a);
}
template <mapped_transport T>
routine run_hierarchical(group_link<T> l, node_group& memory, const reduce_args& a) {
  return hierarchical_reduce<T>(l, memory, a);
}
template <mapped_transport T>
routine run_hierarchical(group_link<T> l, node_group& memory, const reduce_scatter_args& a) {
  return hierarchical_reduce_scatter<T>(l, memory, a);
}
template <mapped_transport T>
routine run_hierarchical(group_link<T> l, node_group& memory, const all_gather_args& a) {
  return hierarchical_all_gather<T>(l, memory, a);
}

template <message_link L>
routine run_messages(L l, const broadcast_args& a, algorithm via) {
  return via == algorithm::chain ? chain_broadcast(l, a) : tree_broadcast(l, a);
}
template <message_link L>
routine run_messages(L l, const reduce_scatter_args& a, algorithm via) {
  return via == algorithm::pairwise ? pairwise_reduce_scatter(l, a) : ring_reduce_scatter(l, a);
}
template <message_link L>
routine run_messages(L l, const all_gather_args& a, algorithm via) {
  return via == algorithm::bruck ? bruck_all_gather(l, a) : ring_all_gather(l, a);
}
template <message_link L>
routine run_messages(L l, const reduce_args& a, algorithm via) {
  return via == algorithm::chain ? chain_reduce(l, a) : tree_reduce(l, a);
}
template <message_link L>
routine run_messages(L l, const scan_args& a, algorithm via) {
  return via == algorithm::chain ? chain_scan(l, a) : recursive_doubling_scan(l, a);
}
template <message_link L>
routine run_messages(L l, const exclusive_scan_args& a, algorithm via) {
  return via == algorithm::chain ? chain_exclusive_scan(l, a) : recursive_doubling_exclusive_scan(l, a);
}
template <message_link L>
routine run_messages(L l, const gather_args& a, algorithm via) {
  return via == algorithm::tree ? tree_gather(l, a) : linear_gather(l, a);
}
template <message_link L>
routine run_messages(L l, const scatter_args& a, algorithm via) {
  return via == algorithm::tree ? tree_scatter(l, a) : linear_scatter(l, a);
}
template <message_link L>
routine run_messages(L l, const all_to_all_args& a, algorithm) {
  return pairwise_all_to_all(l, a);
}
template <message_link L>
routine run_messages(L l, const all_gather_v_args& a, algorithm) {
  return ring_all_gather_v(l, a);
}
template <message_link L>
routine run_messages(L l, const reduce_scatter_v_args& a, algorithm) {
  return ring_reduce_scatter_v(l, a);
}
template <message_link L>
routine run_messages(L l, const all_reduce_coalesced_args& a, algorithm via) {
  return packed_all_reduce_coalesced(l, a, via);
}

}  // namespace tutti::algo
