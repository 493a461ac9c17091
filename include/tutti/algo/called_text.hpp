#pragma once
#include <cstdint>
#include <string>

#include <tutti/algo/called.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

namespace detail {

inline std::string type_and_rest(const called& c) {
  std::string text(name(c.type));
  if (c.type == dtype::opaque && c.element_bytes != 0) text += " of " + std::to_string(c.element_bytes) + " bytes";
  if (c.with != called::no_reduction) text += std::string(", ") + name(static_cast<reduction_kind>(c.with));
  return text;
}

}  // namespace detail

/// "broadcast #41 (1024 x float32, root 0)"
inline std::string describe(const called& c) {
  const bool uneven = c.count == called::any_count && c.is_between_two();
  const std::string text = name(c.what) + std::string(uneven ? "_v" : "") + " #" + std::to_string(c.sequence);
  if (c.what == collective::barrier) return text;
  std::string of = detail::type_and_rest(c);
  if (c.count != called::any_count) of = std::to_string(c.count) + " x " + of;
  if (c.has_root()) of += ", root " + std::to_string(c.root());
  if (c.via != algorithm::automatic) of += std::string(", by ") + name(c.via);
  return text + " (" + of + ")";
}

/// What called::brief() has kept of a call among so many ranks: "broadcast #41 (float32, root 0)"; its number, and how
/// many elements, where they are known. "gather(_v)": it does not tell the two apart; `variant` does.
inline std::string describe_brief(std::uint16_t brief, int ranks, std::uint64_t number = 0,
                                  const std::string& elements = {}, const char* variant = "(_v)") {
  const called c = called::of_brief(brief);
  std::string text = name(c.what);
  if (c.is_between_two()) text += variant;
  if (number != 0) text += " #" + std::to_string(number);
  if (c.what == collective::none || c.what == collective::barrier) return text;
  text += " (" + (elements.empty() ? "" : elements + " x ") + detail::type_and_rest(c);
  if (c.has_root() && ranks <= 8) text += ", root " + std::to_string(brief & 7U);
  return text + ")";
}

}  // namespace tutti::algo
