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

  struct one {
    std::uint64_t tag;    ///< whose step is the algorithm
    std::uint64_t all;    ///< a hash of everything else that ranks must call alike
    std::uint16_t brief;  ///< what of it can be told; 0 where there is no such call

    friend std::uint64_t tag_of(const one& c) noexcept { return c.tag; }
  };

  /// Who remembers calls that were not noted, because they had ended at once.
  class witness {
   public:
    [[nodiscard]] virtual one recall(std::uint64_t t) const noexcept = 0;

   protected:
    virtual ~witness() = default;

   private:
    friend class call_log;
    witness* next_ = nullptr;
  };
  /// To be asked from now on, until dismiss().
  void consult(witness& w) noexcept {
    w.next_ = first_;
    first_ = &w;
  }
  void dismiss(witness& w) noexcept {
    for (witness** at = &first_; *at; at = &(*at)->next_)
      if (*at == &w) {
        *at = w.next_;
        return;
      }
  }
  [[nodiscard]] one recall(std::uint64_t t) const noexcept {
    if (const one* noted = find(t)) return *noted;
    one known{};
    for (const witness* w = first_; w && known.brief == 0; w = w->next_) known = w->recall(t);
    return known;
  }

  void note(const one& c) noexcept { calls_[next_++ % remembered] = c; }
  /// Null where it has not called that yet, or too long ago.
  [[nodiscard]] const one* find(std::uint64_t t) const noexcept {
    for (const one& c : calls_)
      if (c.brief != 0 && tag::of_one_operation(c.tag, t)) return &c;
    return nullptr;
  }

 private:
  std::array<one, remembered> calls_{};
  std::size_t next_ = 0;
  witness* first_ = nullptr;
};

}  // namespace tutti
