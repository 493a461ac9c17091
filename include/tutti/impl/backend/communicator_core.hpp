#pragma once
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include <tutti/algo/mismatch/mismatch_report.hpp>
#include <tutti/backend/communicator_core.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/log.hpp>
#include <tutti/core/text.hpp>

namespace tutti {

namespace detail {

/// Text of the error for a backend's failed operation.
template <class B>
class failure_text {
 public:
  /// `words` are those of an exception that a reduction threw on this rank; empty if none did.
  failure_text(const B& of, const std::string& words) noexcept : backend_(&of), words_(&words) {}

  /// Returns peer and tag of a message, such as ", to rank 1, tag 7", with the peer's number in the world.
  [[nodiscard]] std::string message_of(const op_info& i) const {
    std::string text;
    if constexpr (requires { backend_->members(); })
      if (i.peer >= 0)
        text += (std::string_view{i.collective} == "send" ? ", to rank " : ", from rank ") +
                std::to_string(backend_->members().world_rank(i.peer));
    if (i.tag >= 0) text += ", tag " + std::to_string(i.tag);
    return text;
  }
  [[nodiscard]] std::string explain(const op_state& s) const {
    const status& r = s.result;
    const std::string who = name_of(r.peer);
    const bool own = r.peer == backend_->world_rank();
    switch (r.code) {
      case errc::timed_out:
        if (own)
          return "failed: " + (r.other == 0 ? std::string("another rank") : subject(backend_->describe(r.other - 1))) +
                 " timed out, waiting for this rank; what kept this rank from that call? The communicator is unusable "
                 "now";
        return (s.info.expired ? "timed out after " + detail::in_seconds(s.info.expires - s.info.issued)
                               : std::string("failed: another operation, here or on another rank, timed out")) +
               ": waiting for " + sought(s.info, who) + "? " + last_call(r.peer) + "The communicator is unusable now";
      case errc::peer_lost:
        return "failed: " + explain_loss(r, who);
      case errc::peer_left:
        return "failed: " + subject(who) +
               " destroyed its communicator before this operation was complete; do all ranks make the same calls?";
      case errc::aborted:
        if (r.detail == status::reduction_threw)
          return "failed: a reduction threw an exception on " +
                 (own ? "this rank" + (words_->empty() ? "" : ": " + *words_) : who);
        if (r.detail == status::hook_threw)
          return "failed: a hook threw an exception on " +
                 (own ? "this rank" + (words_->empty() ? "" : ": " + *words_) : who);
        if (r.detail == status::group_left)
          return "was not begun: its group was left by an exception, or its handle was dropped in it";
        return "aborted" + (r.peer < 0 ? "" : " by " + (own ? "this rank" : who)) + occasion(r.detail);
      case errc::mismatch:
        return explain_mismatch(s) + (algo::is_between_two(r)
                                          ? "; sender and receiver must agree on the count"
                                          : "; all ranks must issue the same operations in the same order, and threads "
                                            "or coroutines that issue beside each other need a split() each");
      case errc::protocol:
        return "failed: " + subject(who) +
               " sent bytes that are not of this protocol; do all ranks run the same version?";
      case errc::out_of_resources:
        return std::string("failed: out of ") +
               (r.detail == EMFILE || r.detail == ENFILE ? "file descriptors" : "memory or shared memory") +
               (r.peer >= 0 ? " on " + who : std::string()) +
               (r.detail == EMFILE ? "; raise its limit (ulimit -n)" : "");
      case errc::system:
        return "failed: " + std::generic_category().message(static_cast<int>(r.detail)) +
               (r.peer >= 0 ? " on " + who : std::string()) +
               (r.detail == EPERM ? "; the kernel copies long messages between processes (process_vm_readv, _writev): "
                                    "enter sandboxes that forbid it before the first of them"
                                  : "");
      case errc::device:
        if constexpr (requires { backend_->words(r); }) return "failed: " + backend_->words(r);
        break;
      case errc::ok:
      case errc::auth_failed:
      case errc::rendezvous:
      case errc::unsupported:
        break;
    }
    return "failed: " + category().message(static_cast<int>(r.code)) + (r.peer >= 0 ? " (" + who + ")" : std::string());
  }

 private:
  /// Returns what the operation waited for, the rank or a message from any rank, and a question that may help.
  static std::string sought(const op_info& i, const std::string& who) {
    const bool message_of_any = i.tag >= 0 && i.peer < 0;
    return message_of_any ? "a message with this tag from any rank; has one been sent"
                          : who + "; is that rank stuck, slow, or past this call";
  }
  /// Returns a sentence about the last call of a rank, if it is known: "Its last call, …, ended 31 s ago. ".
  [[nodiscard]] std::string last_call([[maybe_unused]] int peer) const {
    std::string text;
    if constexpr (requires { backend_->last_call_of(peer); })
      if (peer >= 0) text = backend_->last_call_of(peer);
    if (text.empty()) return text;
    text.front() = 'I';
    return text + ". ";
  }
  /// Returns the words for a rank that was lost: `who`, and how, as far as it is known.
  [[nodiscard]] std::string explain_loss(const status& r, const std::string& who) const {
    const std::string cause =
        r.error_number() == 0 ? "" : " (" + std::generic_category().message(r.error_number()) + ")";
    const std::string see = "; see that rank's own output for the cause";
    if (r.peer == backend_->world_rank()) return "another rank lost its connection to this rank" + cause + see;
    switch (r.how_lost()) {
      case loss::died:
        return subject(who) + " died" + see;
      case loss::broken:
        return subject(who) + " lost its connection" + cause + ": its process died, or the network cut it off" + see;
      case loss::cut:
        return subject(who) + " lost its connection" + cause +
               ", though its process lives: did it close what it inherited, or did something cut it?";
      case loss::unknown:
        break;
    }
    return subject(who) + " died, left, or lost its connection" + see;
  }
  /// Returns the reason for which a rank aborted, if it did not call abort().
  static std::string occasion(std::uint64_t detail) {
    if (detail == status::pass_dropped)
      return ": a pass was dropped there before its finish() had ended, as where the backward pass throws";
    if (detail == status::destroyed)
      return ": it destroyed a communicator with operations in flight, which ends its world; wait for them first";
    return "";
  }
  [[nodiscard]] std::string name_of(int peer) const {
    return peer >= 0 ? backend_->describe(peer) : std::string("a rank that could not be determined");
  }
  /// Returns the description of a rank as the subject of a verb: a clause between commas is closed by one.
  static std::string subject(std::string who) {
    if (who.find("), ") != std::string::npos) who += ',';
    return who;
  }
  [[nodiscard]] std::string explain_mismatch(const op_state& s) const {
    if constexpr (requires { backend_->explain_mismatch(s); })
      if (std::string text = backend_->explain_mismatch(s); !text.empty()) return text;
    const bool own = s.result.peer == backend_->world_rank();
    return "failed: " + (own ? "this rank" : name_of(s.result.peer) + ": it") +
           " called another collective here, or with another size or type";
  }

  const B* backend_;
  const std::string* words_;
};

}  // namespace detail

template <backend B>
error communicator_core<B>::describe(const op_state& s) const {
  const auto guard = engine_->lock();  // other threads go on, and change what the text tells
  status r = s.result;
  const detail::failure_text<B> words{backend_, words_};
  const std::string text = title(s) + " " + words.explain(s);
  if constexpr (requires { backend_.outlier(s); })
    if (r.code == errc::mismatch) r.peer = backend_.outlier(s);
  return error{r, text, {backend_.rank(), s.info.sequence, s.info.collective, s.info.where}};
}

template <backend B>
std::string communicator_core<B>::title(const op_state& s) const {
  std::string text = std::string(s.info.collective) + " #" + std::to_string(s.info.sequence) + " (" +
                     detail::file_and_line(s.info.where);
  if (s.info.count != 0) text += ", " + std::to_string(s.info.count) + " x " + std::string(name(s.info.type));
  if (s.info.reduction) text += std::string(", ") + s.info.reduction;
  if (s.info.root >= 0) text += ", root " + std::to_string(s.info.root);
  const detail::failure_text<B> words{backend_, words_};
  return text + words.message_of(s.info) + ")";
}

template <backend B>
void communicator_core<B>::failed(status& why) noexcept {
  // A lack of resources, a system error or an exception of the user's code that names no rank is this rank's.
  const bool own = why.code == errc::out_of_resources || why.code == errc::system || why.code == errc::aborted;
  const int here = backend_.world_rank();
  if (own && why.peer < 0) why.peer = here;
  // A rank that reports the loss of this rank lives, and is the one that this rank has lost.
  if (why.code == errc::peer_lost && why.peer == here && why.other != 0)
    why = status::lost(why.other - 1, loss::cut, here, why.error_number());
  backend_.abort(why);
}
template <backend B>
void communicator_core<B>::stepped(const op_state& s) noexcept {
  if (s.record == 0) return;
  s.steps == 1 ? recorder_->started(s.record) : recorder_->proceeded(s.record);
}
template <backend B>
void communicator_core<B>::ended(const op_state& s) noexcept {
  if (s.record != 0) recorder_->ended(s.record, s.result);
  if (s.info.stalls == 0 || !s.result.ok()) return;
  try {
    detail::log(log_level::warning, "rank " + std::to_string(backend_.world_rank()) + ": " + title(s) +
                                        " has ended after " + detail::in_seconds(clock::now() - s.info.issued));
  } catch (const std::exception&) {  // out of memory
  }
}
template <backend B>
void communicator_core<B>::stalled(const op_state& s, int awaited, duration waited) noexcept try {
  std::string who;
  if constexpr (requires { backend_.absent(s); }) who = backend_.absent(s);
  if (who.empty() && awaited >= 0) {
    who = "it waits for " + backend_.describe(awaited);
    if constexpr (requires { backend_.last_call_of(awaited); })
      if (const std::string last = backend_.last_call_of(awaited); !last.empty()) who += ": " + last;
  }
  if (who.empty()) who = "it is not known for which rank";
  detail::log(log_level::warning, "rank " + std::to_string(backend_.world_rank()) + ": " + title(s) +
                                      " has waited for " + detail::in_seconds(waited) + ", and fails after " +
                                      detail::in_seconds(s.info.expires - s.info.issued) + ": " + who);
} catch (const std::exception&) {  // out of memory
}
template <backend B>
void communicator_core<B>::threw(const char* what) noexcept {
  try {
    if (words_.empty()) words_ = what;
  } catch (const std::bad_alloc&) {  // the error then lacks the text
  }
}

}  // namespace tutti
