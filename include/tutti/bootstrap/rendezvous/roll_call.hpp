#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/bootstrap/rendezvous/claim.hpp>
#include <tutti/bootstrap/rendezvous/roster.hpp>
#include <tutti/bootstrap/rendezvous/verdict.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/store/concept.hpp>

namespace tutti {

/// Limits of a roll call.
struct roll_call_options {
  deadline until = after(std::chrono::seconds{60});
  duration settle = std::chrono::milliseconds{100};  ///< time to wait for an extra rank; 0: none can come
  std::stop_token stop{};                            ///< checked every 100 ms
};

/// Protocol by which the ranks of a world find each other in a store that is empty before: at its end all ranks have
/// the same roster, or all have failed for the same reason.
///
/// Every rank constructs one and calls the same functions in the same order. In each round every rank writes an entry
/// under its own key; the coordinator, the rank that came first, collects the entries and writes the verdict, for which
/// all others wait. A verdict is written once. A rank that finds a contradiction writes the verdict itself. Values from
/// the store are untrusted, and their sizes are bounded. Errors: error{rendezvous}, {protocol} (versions, foreign
/// bytes), {peer_lost}, {aborted}, and those of the store.
template <store S>
class roll_call {
 public:
  static constexpr int most_ranks = 65536;

  /// Throws usage_error for an impossible world. A rank beyond its world is accepted: call() reports it to all ranks.
  roll_call(S& store, roll_call_claim me, roll_call_options how)
      : store_(&store), me_(std::move(me)), how_(std::move(how)), began_(clock::now()) {
    if (me_.world_size < 1 || me_.world_size > most_ranks || me_.rank < 0)
      throw usage_error("rank " + std::to_string(me_.rank) + " in a world of " + std::to_string(me_.world_size) +
                        ": a world has 1 to " + std::to_string(most_ranks) + " ranks, counted from 0");
  }

  /// Returns a random number, equal on all ranks and different for every roll call. May be called before call(), which
  /// begins with it.
  [[nodiscard]] std::uint64_t nonce() {
    if (!first_) first_ = parse(store_->compare_set("terms", {}, encode(me_)), "terms");
    return first_->token;
  }

  /// Runs round one: collects the claims of all ranks. Returns the roster, without endpoints.
  [[nodiscard]] roster call() {
    const detail::blob mine = encode(me_);
    static_cast<void>(nonce());
    const roll_call_claim& first = *first_;
    coordinator_ = first == me_;
    watch(first);
    if (const std::string why = why_not_together(first, me_); !why.empty())
      contradict({first.version == me_.version && first.protocols == me_.protocols ? errc::rendezvous : errc::protocol,
                  0, first.job == me_.job ? me_.rank : -1, 0},
                 why);
    if (me_.rank >= me_.world_size)
      contradict({errc::rendezvous, 0, me_.rank, 0},
                 describe(me_) + " is one too many in the world that " + describe(first) +
                     " began; start as many processes as the world has, ranks count from 0");
    if (const auto holder = parse(store_->compare_set(slot(me_.rank), {}, mine), slot(me_.rank)); holder != me_)
      contradict({errc::rendezvous, 0, me_.rank, 0},
                 describe(holder) + " and " + describe(me_) +
                     " claim the same rank; give every process a rank of its own, and every job a rendezvous");
    const auto claims = finish_round(roll_call_claim::most_encoded_bytes, how_.settle);
    roster all = make_roster(claims);
    const rank_info& self = all[static_cast<std::size_t>(me_.rank)];
    if (self.pid != me_.pid || self.start_time != me_.start_time)
      throw error{{errc::protocol}, "the roster lists " + tutti::describe(self) + " instead of " + describe(me_)};
    choose_watched(claims, self);
    round_ = "places";
    return all;
  }

  /// Runs round two: exchanges the addresses of all ranks and completes the roster. `mine` has this rank's endpoint and
  /// name of shared memory.
  void exchange_places(roster& all, const rank_info& mine) {
    detail::fill_places(all, exchange(detail::encode_place(mine), 4 + 2 * detail::longest_endpoint));
    round_ = "links";
  }

  /// Counts this rank as served: it needs nothing from the store for now. await_served() returns when all ranks are.
  void note_served() {
    if (store_->add("served", 1) == me_.world_size) store_->set("all served", one_byte());
  }
  void await_served() { static_cast<void>(wait_for("all served")); }

  /// Throws the failure that a rank has reported in this round, if there is one. A host serves the others meanwhile.
  void expect_success() {
    if (const auto written = store_->try_get(key("verdict"))) check(*written);
  }

  /// Runs round three: returns once all ranks have their links.
  void confirm() { static_cast<void>(exchange(one_byte(), 1)); }

  /// Runs a round with an entry of at most `longest` (up to 65535) bytes from every rank; returns the entries in rank
  /// order.
  [[nodiscard]] std::vector<detail::blob> exchange(std::span<const std::byte> mine, std::size_t longest) {
    // The host of the store serves only inside its own calls; this get() waits for it until the deadline, while set()
    // does not.
    static_cast<void>(wait_for("terms"));
    store_->set(slot(me_.rank), mine);
    return finish_round(longest, duration{0});
  }

  /// Reports that this rank cannot continue: all ranks fail with the same message. Returns the failure that another
  /// rank has reported first and that may have caused this one. Never throws.
  std::optional<error> fail(const status& why, std::string_view message) noexcept try {
    const std::string start = describe(me_) + " cannot join: ";
    const int whose = why.peer >= 0 && why.peer < me_.world_size ? why.peer : me_.rank;
    const auto written = decide({why.code, 0, whose, 0}, start + std::string(message));
    const auto v = detail::decode_verdict(written);
    if (!v || v->failure.ok() || v->message.starts_with(detail::printable(start))) return std::nullopt;
    return error{v->failure, v->message, {me_.rank}};
  } catch (...) {
    // The others fail by themselves: the store has failed for them, too, or their deadline passes.
    return std::nullopt;
  }

 private:
  static constexpr duration slice = std::chrono::milliseconds{100};
  static constexpr std::size_t chunk_bytes = std::size_t{1} << 19U;

  static std::span<const std::byte> one_byte() noexcept {
    static constexpr std::byte one{1};
    return {&one, 1};
  }
  [[nodiscard]] std::string key(std::string_view what) const { return round_ + "/" + std::string(what); }
  [[nodiscard]] std::string slot(int rank) const { return key(std::to_string(rank)); }

  [[nodiscard]] roll_call_claim parse(std::span<const std::byte> value, const std::string& where) const {
    auto c = decode_claim(value);
    if (!c)
      throw error{
          {errc::protocol},
          "the store holds something else than a rank's claim under \"" + where + "\"; is it used by another program?"};
    return *std::move(c);
  }

  /// Writes a failure as the verdict of this round unless there is one. Returns the verdict in place.
  detail::blob decide(const status& why, const std::string& message) {
    return store_->compare_set(key("verdict"), {}, detail::encode_failure(why, message));
  }
  /// Throws the failure in a verdict, if it is one.
  void check(std::span<const std::byte> written) const {
    const auto v = detail::decode_verdict(written);
    if (!v)
      throw error{{errc::protocol}, "the store holds something else than a verdict under \"" + key("verdict") + "\""};
    if (!v->failure.ok()) throw error{v->failure, v->message, {me_.rank}};
  }
  [[noreturn]] void contradict(const status& why, const std::string& message) {
    check(decide(why, message));
    throw error{why,
                message + " (the world was complete before this process, pid " + std::to_string(me_.pid) +
                    ", came, and goes on without it)",
                {me_.rank}};
  }

  std::vector<detail::blob> finish_round(std::size_t longest, duration settle) {
    if (!coordinator_) return read_list(wait_for(key("verdict")), longest);
    std::vector<detail::blob> entries;
    for (int r = 0; r < me_.world_size; ++r) {
      entries.push_back(wait_for(slot(r)));
      if (round_ == first_round && r != me_.rank)
        if (const auto c = decode_claim(entries.back())) watch(*c);
    }
    if (settle > duration{0}) wait_for_surplus(settle);
    write_list(entries);
    return entries;
  }

  void wait_for_surplus(duration settle) {
    const deadline end = (std::min)(how_.until, after(settle));
    try {
      check(store_->get(key("verdict"), end));
    } catch (const error& e) {
      if (e.kind() != errc::timed_out || clock::now() < end) throw;
    }
  }

  void write_list(const std::vector<detail::blob>& entries) {
    const detail::blob list = detail::encode_list(entries);
    const std::span<const std::byte> all{list};
    for (std::size_t at = chunk_bytes, i = 1; at < all.size(); at += chunk_bytes, ++i)
      store_->set(key("more/" + std::to_string(i)), all.subspan(at, (std::min)(chunk_bytes, all.size() - at)));
    const auto head = detail::encode_list_head(static_cast<std::uint32_t>(entries.size()), all.size(),
                                               all.first((std::min)(chunk_bytes, all.size())));
    check(store_->compare_set(key("verdict"), {}, head));
  }

  [[nodiscard]] std::vector<detail::blob> read_list(const detail::blob& verdict, std::size_t longest) {
    check(verdict);
    const auto v = *detail::decode_verdict(verdict);
    const auto n = static_cast<std::uint32_t>(me_.world_size);
    detail::blob list;
    if (v.count == n && v.list_bytes <= std::uint64_t{n} * (2 + longest)) {
      list.assign(v.piece.data(), v.piece.data() + v.piece.size());
      for (std::size_t i = 1; list.size() < v.list_bytes; ++i) {
        const auto more = store_->get(key("more/" + std::to_string(i)), how_.until);
        if (more.empty()) break;
        list.insert(list.end(), more.data(), more.data() + more.size());
      }
      if (list.size() == v.list_bytes)
        if (auto entries = detail::decode_list(list, n, longest)) return *std::move(entries);
    }
    throw error{{errc::protocol},
                "the verdict under \"" + key("verdict") + "\" is not that of " + std::to_string(me_.world_size) +
                    " ranks; do all run the same version?"};
  }

  /// Waits for a key. Checks every 100 ms whether a rank has failed or died, and for the deadline and a stop.
  detail::blob wait_for(const std::string& wanted) {
    for (;;) {
      const deadline end = (std::min)(how_.until, after(slice));
      try {
        return store_->get(wanted, end);
      } catch (const error& e) {
        // A store that has failed must not be asked again in a loop.
        if (e.kind() != errc::timed_out || clock::now() < end) throw;
      }
      if (auto written = look_around()) {
        check(*written);
        if (wanted == key("verdict")) return *std::move(written);
        // The others may continue, but this rank's time is over, or it was told to stop.
        if (clock::now() >= how_.until || how_.stop.stop_requested()) throw given_up();
      }
    }
  }

  std::optional<detail::blob> look_around() {
    for (const roll_call_claim& c : watched_)
      if (!os::is_alive(c.pid, c.start_time))
        return decide({errc::peer_lost, 0, c.rank, 0}, describe(c) +
                                                           " died while the ranks of its world were joining; "
                                                           "its own output says why");
    if constexpr (requires { store_->accept_failure(); })
      if (const status s = store_->accept_failure(); !s.ok())
        return decide({s.code, 0, me_.rank, s.detail}, describe(me_) + " cannot take the connections of other ranks: " +
                                                           os::errno_text(s.error_number()));
    if (how_.stop.stop_requested())
      return decide({errc::aborted, 0, me_.rank, 0}, describe(me_) + " was told to stop while joining");
    if (clock::now() >= how_.until) return decide(missing().first, missing().second);
    return store_->try_get(key("verdict"));
  }

  [[nodiscard]] error given_up() const {
    return how_.stop.stop_requested()
               ? error{{errc::aborted}, describe(me_) + " was told to stop while joining", {me_.rank}}
               : error{{errc::rendezvous}, describe(me_) + " did not finish joining within " + waited(), {me_.rank}};
  }
  [[nodiscard]] std::string waited() const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began_).count();
    return ms < 10000 ? std::to_string(ms) + " ms" : std::to_string(ms / 1000) + " s";
  }

  /// Returns the failure after the deadline, which names the ranks that did not come.
  [[nodiscard]] std::pair<status, std::string> missing() {
    std::vector<int> absent;
    for (int r = 0; r < me_.world_size; ++r)
      if (!store_->try_get(slot(r))) absent.push_back(r);
    const auto n = static_cast<std::size_t>(me_.world_size);
    const status why{errc::rendezvous, 0, absent.empty() ? -1 : absent.front(), 0};
    const bool joining = round_ == first_round;
    const char* const advice =
        joining ? ". Did these processes start, and do they use this rendezvous?" : ". Are these processes stopped?";
    std::string text = std::to_string(n - absent.size()) + " of " + std::to_string(n) + " ranks " +
                       (joining ? "came within " : "made their links within ") + waited();
    if (!absent.empty()) text += "; absent: " + detail::rank_list(absent) + advice;
    // A rank that the store has refused may be the one that is missing.
    if constexpr (requires { store_->remark(); })
      if (const std::string more = store_->remark(); !more.empty()) text += " " + more;
    if (!absent.empty()) return {why, text};
    return {why, text + ", but the rank that calls the roll did not go on; is it stopped?"};
  }

  /// Adds a process of this machine to those whose death is noticed at once. It may be the store's host, or a rank for
  /// which all others wait.
  void watch(const roll_call_claim& c) {
    if (c.memory_domain == me_.memory_domain && c.start_time != 0 && c.pid != me_.pid) watched_.push_back(c);
  }
  /// Chooses the processes to watch: the first rank of a machine, and the coordinator, watch all ranks of their
  /// machine; the others watch the first one.
  void choose_watched(const std::vector<detail::blob>& claims, const rank_info& self) {
    std::vector<roll_call_claim> machine;
    for (const detail::blob& entry : claims)
      if (auto c = decode_claim(entry); c && c->memory_domain == me_.memory_domain) machine.push_back(*std::move(c));
    watched_.clear();
    for (std::size_t i = 0; i < machine.size() && (self.local_rank == 0 || coordinator_ || i == 0); ++i)
      watch(machine[i]);
  }

  static constexpr std::string_view first_round = "ranks";

  S* store_;
  roll_call_claim me_;
  roll_call_options how_;
  deadline began_;
  std::string round_{first_round};
  bool coordinator_ = false;
  std::optional<roll_call_claim> first_;  ///< claim of the coordinator
  std::vector<roll_call_claim> watched_;
};

}  // namespace tutti
