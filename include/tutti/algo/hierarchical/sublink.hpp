#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/core/status.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti::algo {

/// Link of some ranks of another link. Its steps begin at `first`, so that phases of one operation do not receive each
/// other's messages. `members` must outlive it. `leader` is the node leader in place of the member with index
/// `replaced`: the root of a rooted collective.
template <message_link L>
class sublink {
 public:
  sublink(L link, const std::vector<int>& members, int rank, std::uint64_t first, int replaced = -1,
          int leader = -1) noexcept
      : link_(link), members_(&members), rank_(rank), first_(first), replaced_(replaced), leader_(leader) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_->size()); }
  auto send(int peer, std::uint64_t step, std::span<const std::byte> out) const noexcept {
    return link_.send(above(peer), first_ + step, out);
  }
  auto recv(int peer, std::uint64_t step, std::span<std::byte> in) const noexcept {
    return link_.recv(above(peer), first_ + step, in);
  }
  auto refuse(status why) const noexcept { return link_.refuse(why); }
  [[nodiscard]] scratch_pool& temporary() const noexcept { return link_.temporary(); }

 private:
  [[nodiscard]] int above(int peer) const noexcept {
    return peer == replaced_ ? leader_ : (*members_)[static_cast<std::size_t>(peer)];
  }
  L link_;
  const std::vector<int>* members_;
  int rank_;
  std::uint64_t first_;
  int replaced_, leader_;
};

}  // namespace tutti::algo
