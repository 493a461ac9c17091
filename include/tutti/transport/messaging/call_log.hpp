#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include <tutti/transport/messaging/tag.hpp>

namespace tutti {

/// Call log: the last 64 collectives that this rank has called, by the tags of their messages regardless of the step. A
/// rank that waits for this one asks it whether it has called the same.
class call_log {
 public:
  static constexpr std::size_t remembered = 64;

  struct entry {
    std::uint64_t tag;       ///< its step is the algorithm
    std::uint64_t all;       ///< a hash of everything else that ranks must call alike
    std::uint16_t short_id;  ///< short id; 0 if there is no such call

    friend std::uint64_t tag_of(const entry& c) noexcept { return c.tag; }
  };

  /// Source of calls that were not logged, because they had ended at once.
  class source {
   public:
    [[nodiscard]] virtual entry recall(std::uint64_t t) const noexcept = 0;

   protected:
    virtual ~source() = default;

   private:
    friend class call_log;
    source* next_ = nullptr;
  };
  /// Adds a source for recall(), which stays valid until forget().
  void ask_also(source& w) noexcept {
    w.next_ = first_;
    first_ = &w;
  }
  void forget(source& w) noexcept {
    for (source** at = &first_; *at; at = &(*at)->next_)
      if (*at == &w) {
        *at = w.next_;
        return;
      }
  }
  /// Returns the call of the operation that tag `t` belongs to, from the log or a source; its `short_id` is 0 if there
  /// is none.
  [[nodiscard]] entry recall(std::uint64_t t) const noexcept {
    if (const entry* noted = find(t)) return *noted;
    entry known{};
    for (const source* w = first_; w && known.short_id == 0; w = w->next_) known = w->recall(t);
    return known;
  }

  void note(const entry& c) noexcept { calls_[next_++ % remembered] = c; }
  /// Returns the logged call of the operation that tag `t` belongs to; null if it was not called yet, or too long ago.
  [[nodiscard]] const entry* find(std::uint64_t t) const noexcept {
    for (const entry& c : calls_)
      if (c.short_id != 0 && tag::of_one_operation(c.tag, t)) return &c;
    return nullptr;
  }

 private:
  std::array<entry, remembered> calls_{};
  std::size_t next_ = 0;
  source* first_ = nullptr;
};

}  // namespace tutti
