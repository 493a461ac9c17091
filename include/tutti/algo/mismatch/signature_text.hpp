#pragma once
#include <cstdint>
#include <string>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/core/options.hpp>

namespace tutti::algo {

namespace detail {

inline std::string type_and_rest(const call_signature& c) {
  std::string text(name(c.type));
  if (c.type == dtype::opaque && c.element_bytes != 0) text += " of " + std::to_string(c.element_bytes) + " bytes";
  if (c.with != call_signature::no_reduction) text += std::string(", ") + name(static_cast<reduction_kind>(c.with));
  return text;
}

}  // namespace detail

/// Returns the text of a signature: "broadcast #41 (1024 x float32, root 0)"
inline std::string describe(const call_signature& c) {
  const bool uneven = c.count == call_signature::any_count && c.is_between_two();
  const std::string call_signature = c.splits()   ? "split"
                                     : c.closes() ? "close"
                                                  : name(c.what) + std::string(uneven ? "_v" : "");
  const std::string text = call_signature + " #" + std::to_string(c.sequence);
  if (c.what == collective::barrier || c.splits() || c.closes()) return text;
  std::string of = detail::type_and_rest(c);
  if (c.count != call_signature::any_count) of = std::to_string(c.count) + " x " + of;
  if (c.has_root()) of += ", root " + std::to_string(c.root());
  if (c.via != algorithm::automatic) of += std::string(", by ") + name(c.via);
  return text + " (" + of + ")";
}

/// Facts about a call that its short id does not hold, as far as they are known.
struct short_id_details {
  std::uint64_t number = 0;
  std::string elements{};        ///< number of elements
  const char* variant = "(_v)";  ///< of gather, scatter and all_to_all, which share a short id with their v-variants
  algorithm via = algorithm::automatic;
};

/// Returns the text of a short id among `ranks` ranks: "broadcast #41 (float32, root 0)".
inline std::string describe_short_id(std::uint16_t short_id, int ranks, const short_id_details& more = {}) {
  const call_signature c = call_signature::of_short_id(short_id);
  std::string text = name(c.what);
  if (c.is_between_two()) text += more.variant;
  if (more.number != 0) text += " #" + std::to_string(more.number);
  if (c.what == collective::none || c.what == collective::barrier) return text;
  text += " (" + (more.elements.empty() ? "" : more.elements + " x ") + detail::type_and_rest(c);
  if (c.has_root() && ranks <= 8) text += ", root " + std::to_string(short_id & 7U);
  if (more.via != algorithm::automatic) text += std::string(", by ") + name(more.via);
  return text + ")";
}

}  // namespace tutti::algo
