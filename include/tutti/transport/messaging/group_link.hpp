#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include <tutti/transport/concept.hpp>
#include <tutti/transport/group.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace tutti {

/// Returns true if this rank maps the memory of all ranks of a group.
template <mapped_transport T>
bool maps_all(const T& link, const group& g) noexcept {
  int mapped = 0;
  while (mapped < g.size && link.maps(g.world_rank(mapped))) ++mapped;
  return mapped == g.size;
}

/// Group link: one operation's view of a group, which algorithms take as their link. It turns ranks of the group into
/// world ranks, and steps into tags. It is small and passed by value; transport and group outlive it.
template <transport T>
class group_link {
 public:
  /// Makes the link of the operation with this sequence number. `call` is the short id that its messages carry, to be
  /// compared by their receivers; 0 for none.
  group_link(T& link, const group& g, std::uint64_t sequence, std::uint16_t call = 0) noexcept
      : link_(&link), group_(&g), sequence_(sequence), call_(call) {}

  [[nodiscard]] int rank() const noexcept { return group_->rank; }
  [[nodiscard]] int size() const noexcept { return group_->size; }
  [[nodiscard]] T& link() const noexcept { return *link_; }
  [[nodiscard]] const group& members() const noexcept { return *group_; }
  /// Returns the sequence number of this collective in its group; the same on all ranks.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
  /// Returns the short id that its messages carry.
  [[nodiscard]] std::uint16_t call() const noexcept { return call_; }

  auto send(int peer, std::uint64_t step, std::span<const std::byte> out) const noexcept {
    return link_->send(group_->world_rank(peer), tag_of(step), out, call_);
  }
  auto recv(int peer, std::uint64_t step, std::span<std::byte> in) const noexcept {
    return link_->recv(group_->world_rank(peer), tag_of(step), in, call_);
  }
  auto refuse(status why) const noexcept { return link_->refuse(why); }
  [[nodiscard]] scratch_pool& temporary() const noexcept { return link_->temporary(); }

 private:
  [[nodiscard]] std::uint64_t tag_of(std::uint64_t step) const noexcept {
    return tag::make(group_->context, sequence_, static_cast<std::uint32_t>(step));
  }

  T* link_;
  const group* group_;
  std::uint64_t sequence_;
  std::uint16_t call_;
};

}  // namespace tutti
