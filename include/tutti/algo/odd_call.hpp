#pragma once
#include <string>

#include <tutti/algo/board.hpp>
#include <tutti/algo/called.hpp>
#include <tutti/algo/called_text.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/transport/lane.hpp>
#include <tutti/transport/odd_message.hpp>

namespace tutti::algo {

/// Two ranks of a group that called different things in one place, the first such place that their board remembers.
struct odd_call {
  int rank = -1;  ///< the other rank, in the group; -1 when no difference is found
  called mine, theirs;

  /// `blamed` is looked at first. For use after errc::mismatch: no rank begins a call any more.
  static odd_call find(const board& b, const group& members, int blamed) noexcept {
    odd_call found;
    if (!b.is_open()) return found;
    const auto look_at = [&](int other) {
      for (std::size_t i = 0; i < board::remembered * board::remembered; ++i) {
        const called mine = b.recent(members.rank, i % board::remembered);
        const called theirs = b.recent(other, i / board::remembered);
        if (mine.sequence == theirs.sequence && !(mine == theirs) &&
            (found.rank < 0 || mine.sequence < found.mine.sequence))
          found = {other, mine, theirs};
      }
    };
    for (int r = 0; r < members.size; ++r)
      if (members.world_rank(r) == blamed && r != members.rank) look_at(r);
    for (int r = 0; r < members.size && found.rank < 0; ++r)
      if (r != members.rank) look_at(r);
    return found;
  }
};

namespace detail {

inline std::string explain(const odd_call& odd, const group& members, const op_info& mine) {
  const std::string who = "rank " + std::to_string(members.world_rank(odd.rank));
  std::string theirs = describe(odd.theirs);
  if (theirs == describe(odd.mine)) theirs += " with blocks of other lengths";
  if (mine.context == members.context && mine.sequence == odd.mine.sequence)
    return "does not match what " + who + " called: " + theirs;
  return "failed: " + who + " called " + theirs + " where this rank called " + describe(odd.mine);
}

inline std::string explain(const odd_message& m, const std::string& who, int ranks) {
  if (m.sent != m.expected && m.sent != 0 && m.expected != 0)
    return "failed: " + who + " called " + describe_brief(m.sent, ranks) + " where another rank called " +
           describe_brief(m.expected, ranks);
  return "failed: " + who + " sent " + std::to_string(m.bytes) +
         (m.bytes == odd_message::most_bytes ? " or more" : "") + " bytes of " +
         (m.sent == 0 ? "a message" : describe_brief(m.sent, ranks)) + " to a rank that waits for another length";
}

}  // namespace detail

/// What ranks called that does not match, for the message of an operation that ended with errc::mismatch; empty where
/// it is not known. `blamed` is the rank that the failure is about, as the subject of a sentence.
inline std::string explain_mismatch(const op_state& s, const board& b, const group& members,
                                    const std::string& blamed) {
  const auto odd = odd_call::find(b, members, s.result.peer);
  if (odd.rank >= 0) return detail::explain(odd, members, s.info);
  return s.result.detail == 0 ? "" : detail::explain(odd_message::of(s.result), blamed, members.size);
}

}  // namespace tutti::algo
