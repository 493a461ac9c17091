#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <tutti/algo/board.hpp>

namespace tutti::algo {

/// Memory of boards that have ended here, while other ranks may still read it: it is given back when all of them have
/// ended theirs. So a rank holds memory for the groups that exist here or on a rank that shares one with it, and no
/// more than 4 KiB and 2 slots, or 4 MiB more after a long message, for each. Under the engine's lock.
class board_remains {
 public:
  board_remains() = default;
  board_remains(const board_remains&) = delete;
  board_remains& operator=(const board_remains&) = delete;
  ~board_remains() {
    while (first_) drop(first_);  // the memory goes with its transport
  }

  /// Takes what the board leaves behind and says farewell to the others; it must not be used any more. Where there is
  /// no memory to remember it, that stays until the transport ends.
  void bury(board& b) noexcept {
    const board::remains r = b.end();
    if (!r.part) return;
    if (auto* n = new (std::nothrow) node{r, first_}) first_ = n;
  }

  /// Gives back what nobody else touches any more.
  template <class Link>
  void reclaim(Link& link) noexcept {
    for (node** at = &first_; *at;) {
      const board::remains r = (*at)->what;
      if (r.farewells->load(std::memory_order_acquire) != r.others) {
        at = &(*at)->next;
        continue;
      }
      drop(*at);
      if (r.long_part) link.deallocate(r.long_part);
      link.deallocate(r.part);
    }
  }

  /// Boards whose memory is still waiting.
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t n = 0;
    for (const node* at = first_; at; at = at->next) ++n;
    return n;
  }

 private:
  struct node {
    board::remains what;
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
