#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/algo/block.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Gather by one message from each rank to the root, straight into place. n-1 steps at the root, which receives every
/// block once; no rank sends or receives a block twice.
template <message_link L>
routine linear_gather(L link, gather_args a) {
  const int n = link.size();
  const std::size_t element = a.in.element_bytes;
  if (link.rank() != a.root) {
    co_await link.send(a.root, 0, {static_cast<const std::byte*>(a.in.data), a.in.bytes()});
    co_return;
  }
  const auto block = [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    return std::span{at(a.out.data, a.blocks.begin(i) * element), a.blocks.size(i) * element};
  };
  copy_bytes(block(a.root).data(), a.in.data, a.in.bytes());
  // Begins with the rank after the root, so that gathers to different roots do not all begin with the same rank.
  for (int away = 1; away < n; ++away) {
    const int r = (a.root + away) % n;
    co_await link.recv(r, 0, block(r));
  }
}

/// Scatter by one message from the root to each rank, straight from its place. n-1 steps at the root.
template <message_link L>
routine linear_scatter(L link, scatter_args a) {
  const int n = link.size();
  const std::size_t element = a.out.element_bytes;
  if (link.rank() != a.root) {
    co_await link.recv(a.root, 0, {static_cast<std::byte*>(a.out.data), a.out.bytes()});
    co_return;
  }
  const auto block = [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    return std::span{at(a.in.data, a.blocks.begin(i) * element), a.blocks.size(i) * element};
  };
  copy_bytes(a.out.data, block(a.root).data(), a.out.bytes());
  for (int away = 1; away < n; ++away) {
    const int r = (a.root + away) % n;
    co_await link.send(r, 0, block(r));
  }
}

}  // namespace tutti::algo
