#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tutti/algo/shm/group/group.hpp>

namespace tutti::algo {

/// Retire list: memory of shm groups that have ended on this rank and may still be read by other ranks. It is freed
/// when all of them have ended theirs. A rank therefore holds memory for each group that exists here, or on a rank that
/// shares one with it: 4 KiB and 2 slots each, and 4 MiB more after a long message. Used under the engine's lock.
class retire_list {
 public:
  retire_list() = default;
  retire_list(const retire_list&) = delete;
  retire_list& operator=(const retire_list&) = delete;
  ~retire_list() {
    while (first_) drop(first_);  // the transport frees the memory
  }

  /// Ends the shm group, which must not be used afterwards, and keeps its memory for reclaim(). If there is no memory
  /// for the list's node, the shm group's memory is freed with the transport.
  void retire(shm_group& shm) noexcept {
    const shm_group::retired_memory r = shm.end();
    if (!r.part) return;
    if (auto* n = new (std::nothrow) node{r, first_}) first_ = n;
  }

  /// Frees the memory that no other rank accesses any more.
  template <class Link>
  void reclaim(Link& link) noexcept {
    for (node** at = &first_; *at;) {
      const shm_group::retired_memory r = (*at)->what;
      if (r.departures->load(std::memory_order_acquire) != r.others) {
        at = &(*at)->next;
        continue;
      }
      drop(*at);
      if (r.long_part) link.deallocate(r.long_part);
      link.deallocate(r.part);
    }
  }

  /// Returns the number of shm groups whose memory is not freed yet.
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t n = 0;
    for (const node* at = first_; at; at = at->next) ++n;
    return n;
  }

 private:
  struct node {
    shm_group::retired_memory what;
    node* next;
  };
  static void drop(node*& at) noexcept {
    node* const gone = at;
    at = gone->next;
    delete gone;
  }
  node* first_ = nullptr;
};

}  // namespace tutti::algo
