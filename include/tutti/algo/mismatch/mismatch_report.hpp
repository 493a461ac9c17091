#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/mismatch/signature_text.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/transport/messaging/message_mismatch.hpp>

namespace tutti::algo {

/// Mismatch report: the first call, among those that the shm group still has, in which ranks of a group differ.
struct mismatch_report {
  /// Ranks that made the same call: its signature, the first of them in the group, and their number.
  struct side {
    call_signature what;
    int rank = -1, ranks = 0;
  };
  side odd;          ///< the ranks that differ; of rank -1 if no difference was found
  side usual;        ///< this rank alone if it has begun its call, else the largest set of equal ranks
  int outlier = -1;  ///< the one rank that differs from a majority of the group; -1 if there is none

  /// Finds the report. To be called after errc::mismatch, when ranks begin hardly any calls. Compares this rank with
  /// `about`, a world rank, if they differ; the other ranks by the number that made equal calls.
  static mismatch_report find(const shm_group& shm, const group& members, int about) noexcept {
    mismatch_report found;
    const std::uint64_t place = shm.is_open() ? first_difference(shm, members.size) : 0;
    if (place == 0) return found;
    const call_signature mine = call_in(place, shm, members.rank);
    const bool begun = mine.sequence == place;
    side sides[most_sides];
    for (int r = 0; r < members.size; ++r) {
      const call_signature theirs = call_in(place, shm, r);
      if (theirs.sequence != place) continue;
      if (begun && theirs != mine && (found.odd.rank < 0 || members.world_rank(r) == about)) found.odd = {theirs, r, 1};
      for (side& s : sides) {
        if (s.ranks != 0 && s.what != theirs) continue;
        if (s.ranks++ == 0) {
          s.what = theirs;
          s.rank = r;
        }
        break;
      }
    }
    int most = 0, all = 0;
    for (const side& s : sides) {
      most = (std::max)(most, s.ranks);
      all += s.ranks;
      if (begun && s.ranks != 0 && s.what == found.odd.what) found.odd = s;
    }
    for (const side& s : sides)
      if (s.ranks == 1 && all == most + 1 && 2 * most > members.size) found.outlier = s.rank;
    if (begun) {
      found.usual = {mine, members.rank, 1};
      return found;
    }
    for (const side& s : sides)
      if (s.ranks > found.usual.ranks) found.usual = s;
    for (const side& s : sides)
      if (s.ranks != 0 && s.rank != found.usual.rank && (found.odd.rank < 0 || s.ranks < found.odd.ranks))
        found.odd = s;
    return found;
  }

 private:
  static constexpr std::size_t most_sides = 4;  // further different calls are not reported

  static call_signature call_in(std::uint64_t place, const shm_group& shm, int rank) noexcept {
    for (std::size_t i = 0; i < shm_group::remembered; ++i)
      if (const call_signature c = shm.recent(rank, i); c.sequence == place) return c;
    return {};
  }
  /// Returns the sequence number of the first call in which ranks differ, 0 if there is none.
  static std::uint64_t first_difference(const shm_group& shm, int ranks) noexcept {
    call_signature
        seen[2 * shm_group::remembered];  // of the first rank that made each call; ranks are a few calls apart
    std::uint64_t first = 0;
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < shm_group::remembered; ++i) {
        const call_signature c = shm.recent(r, i);
        for (call_signature& s : seen) {
          if (c.sequence == 0 || (s.sequence != 0 && s.sequence != c.sequence)) continue;
          if (s.sequence == 0) s = c;
          if (s != c && (first == 0 || c.sequence < first)) first = c.sequence;
          break;
        }
      }
    return first;
  }
};

namespace detail {

/// Returns the words for a difference that the signature's text does not show.
inline const char* unnamed(const call_signature& c) noexcept {
  if (!c.divides()) return " with blocks of other lengths";
  return c.what == collective::reduce_scatter_v ? " with another divisor or blocks of other lengths"
                                                : " with another divisor";
}

inline std::string text_of(const mismatch_report::side& s, const group& members) {
  const std::string who = "rank " + std::to_string(members.world_rank(s.rank));
  if (s.ranks == 1) return who;
  return who + " and " + (s.ranks == 2 ? "one other" : std::to_string(s.ranks - 1) + " others");
}

/// Returns the words for this rank's algorithm, which the text of its operation does not contain.
inline std::string own_way(const mismatch_report& found) {
  const algorithm own = found.usual.what.via;
  return own == algorithm::automatic || own == found.odd.what.via ? "" : ", not by " + std::string(name(own));
}

/// Returns the words for the call of the ranks that differ.
inline std::string call_of_odd(const mismatch_report& found) {
  const std::string odd = describe(found.odd.what);
  return odd == describe(found.usual.what) ? odd + unnamed(found.odd.what) : odd;
}

/// Returns a sentence about the calls of both sides.
inline std::string both_sides(const mismatch_report& found, const group& members) {
  const bool own = found.usual.rank == members.rank;
  return text_of(found.odd, members) + " called " + call_of_odd(found) + " where " +
         (own ? "this rank" : text_of(found.usual, members)) + " called " + describe(found.usual.what);
}

/// Returns the explanation of a mismatch that the shm group shows, for the operation `mine`.
inline std::string explain(const mismatch_report& found, const group& members, const op_info& mine) {
  const bool own = found.usual.rank == members.rank;
  if (own && mine.context == members.context && mine.sequence == found.usual.what.sequence)
    return "does not match what " + text_of(found.odd, members) + " called: " + call_of_odd(found) + own_way(found);
  return "failed: " + both_sides(found, members);
}

/// Returns the explanation of a mismatch that a message showed: `who` has sent the message, `finder` has found it.
inline std::string explain(const message_mismatch& m, const std::string& who, const std::string& finder,
                           const group& members, const op_info& mine) {
  const bool here = message_mismatch::mark_of(mine.context) == m.context && mine.context != op_info::outside;
  const std::uint64_t number = here ? m.number_near(mine.sequence) : 0;
  if (m.calls_differ()) {
    const std::string theirs = describe_short_id(m.sent, members.size, {number});
    const std::string its = describe_short_id(m.expected, members.size, {number});
    const call_signature c = call_signature::of_short_id(m.sent);
    const char* last = " with another divisor";
    if (c.has_root())
      last = " with another root";
    else if (c.type == dtype::opaque)
      last = " with elements of another size";
    return "failed: " + who + " called " + theirs + (theirs == its ? last : "") + " where " + finder + " called " + its;
  }
  const auto length = [&](std::uint64_t n) { return std::to_string(n) + (n == m.most() ? " or more" : ""); };
  // The root is among what the plain bits of a short id leave open.
  const auto call = [&](const short_id_details& more) {
    const auto short_id = static_cast<std::uint16_t>(m.sent | call_signature::plain_short_id);
    return describe_short_id(short_id, (std::numeric_limits<int>::max)(), more);
  };
  static_assert(message_mismatch::any == call_signature::any_count);
  const auto with = [&](std::uint64_t n) {
    if (m.of == message_mismatch::unit::algorithms) return call({.number = number, .via = static_cast<algorithm>(n)});
    if (n == message_mismatch::any) return call({.number = number, .variant = "_v"});
    return call({number, length(n), ""});
  };
  if (m.of == message_mismatch::unit::elements && m.bytes == m.room)
    return "failed: " + who + " called " + call({number}) +
           " with another size, root, divisor, algorithm or lengths of blocks than " + finder;
  if (m.of != message_mismatch::unit::bytes)
    return "failed: " + who + " called " + with(m.bytes) + " where " + finder + " called " + with(m.room);
  const call_signature c = call_signature::of_short_id(m.sent);
  const bool by_all = m.sent != 0 && !c.is_between_two();
  const bool in_blocks = c.what == collective::reduce_scatter_v || c.what == collective::all_gather_v;
  return "failed: " + who + " sent " + length(m.bytes) + " bytes of " + (m.sent == 0 ? "a message" : call({number})) +
         " to " + finder + ", which waits for " + (m.bytes == m.room ? "another length" : length(m.room)) +
         (by_all
              ? std::string(": they differ in the ") + (in_blocks ? "lengths of blocks" : "count") + " or the algorithm"
              : "");
}

}  // namespace detail

/// Returns true if the status tells of two ranks that made different calls.
inline bool is_of_calls(const status& s) noexcept { return s.detail != 0 && message_mismatch::in(s).sent != 0; }

/// Returns true if a message, or a block whose length only two ranks know, is not as long as its receiver expects.
inline bool is_between_two(const status& s) noexcept {
  if (s.detail == 0) return false;
  const message_mismatch m = message_mismatch::in(s);
  if (m.sent == 0) return m.bytes != m.room;
  return m.of == message_mismatch::unit::bytes && !m.calls_differ() &&
         call_signature::of_short_id(m.sent).is_between_two();
}

/// Returns the explanation of a mismatch for the message of an operation that ended with errc::mismatch; empty if
/// nothing is known. `about` names the rank that the failure is about, as the subject of a sentence.
inline std::string explain_mismatch(const op_state& s, const shm_group& shm, const group& members,
                                    const std::string& about) {
  const auto found = mismatch_report::find(shm, members, s.result.peer);
  if (found.odd.rank >= 0) return detail::explain(found, members, s.info);
  if (s.result.detail == 0) return "";
  const int other = s.result.other - 1;
  const std::string finder = other < 0                                   ? "another rank"
                             : other == members.world_rank(members.rank) ? "this rank"
                                                                         : "rank " + std::to_string(other);
  return detail::explain(message_mismatch::in(s.result), about, finder, members, s.info);
}

}  // namespace tutti::algo
