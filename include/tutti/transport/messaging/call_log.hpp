#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include <tutti/transport/messaging/tag.hpp>

namespace tutti {

/// The collectives that a rank has called last, by the tags of their messages, whatever their steps: a rank that waits
/// for this one asks whether it called the same.
class call_log {
 public:
  static constexpr std::size_t remembered = 64;

  struct entry {
    std::uint64_t tag;       ///< whose step is the algorithm
    std::uint64_t all;       ///< a hash of everything else that ranks must call alike
    std::uint16_t short_id;  ///< what of it can be told; 0 where there is no such call

    friend std::uint64_t tag_of(const entry& c) noexcept { return c.tag; }
  };

  /// Who remembers calls that were not noted, because they had ended at once.
  class source {
   public:
    [[nodiscard]] virtual entry recall(std::uint64_t t) const noexcept = 0;

   protected:
    virtual ~source() = default;

   private:
    friend class call_log;
    source* next_ = nullptr;
  };
  /// To be asked from now on, until forget().
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
  [[nodiscard]] entry recall(std::uint64_t t) const noexcept {
    if (const entry* noted = find(t)) return *noted;
    entry known{};
    for (const source* w = first_; w && known.short_id == 0; w = w->next_) known = w->recall(t);
    return known;
  }

  void note(const entry& c) noexcept { calls_[next_++ % remembered] = c; }
  /// Null where it has not called that yet, or too long ago.
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
