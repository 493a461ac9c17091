#pragma once
#include <atomic>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tutti/algo/odd_call.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op_pool.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/core/text.hpp>
#include <tutti/core/users_reduction.hpp>
#include <tutti/os/coarse_clock.hpp>

namespace tutti {

/// What a communicator is under its face: a backend, the slab of its operations, and the words for their errors.
/// Lives until the communicator and the last handle of a slot are gone, whichever is later.
template <backend B>
class issuer final : public op_owner {
 public:
  issuer(B b, std::shared_ptr<tutti::engine> home, duration timeout)
      : home_(std::move(home)), backend_(std::move(b)), timeout_(timeout) {}
  issuer(const issuer&) = delete;
  issuer& operator=(const issuer&) = delete;

  [[nodiscard]] B& backend() noexcept { return backend_; }
  [[nodiscard]] const B& backend() const noexcept { return backend_; }
  [[nodiscard]] tutti::engine& engine() noexcept override { return *home_; }
  /// Expires with the communicator: from then on nothing may be issued.
  [[nodiscard]] std::weak_ptr<const char> life() const noexcept { return life_; }
  [[nodiscard]] duration timeout() const noexcept { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(duration d) noexcept { timeout_.store(d, std::memory_order_relaxed); }

  /// Starts a collective. `make(op_state&)` returns its arguments, which may point into the slot; `make()`, which may
  /// be called twice, those that do not. What a backend can end by begin() costs nothing else: the latter need no slot
  /// then, and what an operation is, and until when it may take, is written down for those that stay in flight.
  template <class Make>
  op_state& issue(std::size_t count, dtype type, duration timeout, const std::source_location& where, Make make,
                  stream_ref stream = {}) {
    using args_type = std::remove_cvref_t<decltype(arguments(make, std::declval<op_state&>()))>;
    home_->check_place(args_type::name);
    const detail::errno_guard kept;
    auto guard = home_->lock();
    constexpr bool in_slot = !std::invocable<Make&>;
    constexpr bool can_begin = requires(const args_type& a) {
      { backend_.begin(a) } noexcept;
    };
    static_assert(!can_begin || !requires { typename B::op_type; }, "handles of devices need a slot");
    if constexpr (requires { backend_.admit(stream, ""); }) backend_.admit(stream, args_type::name);
    if constexpr (can_begin && !in_slot) {
      pool_.reserve();  // what has begun must not fail
      if (backend_.begin(make())) return op_state::ended();
    }
    op_state& s = pool_.acquire();
    const auto& args = arguments(make, s);
    s.owner = this;
    if constexpr (can_begin && in_slot)
      if (backend_.begin(args)) {
        s.complete_at_once();
        return s;
      }
    const auto now = os::coarse_now();
    const duration limit = timeout > duration{0} ? timeout : timeout_.load(std::memory_order_relaxed);
    const deadline expires = limit >= deadline::max() - now ? deadline::max() : now + limit;
    s.info = {args.name, count, type, 0, where, now, expires};
    s.info.stream = stream;
    if constexpr (requires { args.within; })
      if (args.within) s.info.collective = args.within;
    if constexpr (requires { args.op.kind; }) s.info.reduction = name(args.op.kind);
    if constexpr (requires { args.root; }) s.info.root = args.root;
    if constexpr (requires { args.peer; }) s.info.peer = args.peer;
    if constexpr (requires { args.tag; }) s.info.tag = args.tag;
    backend_.start(args, s);
    return s;
  }

  /// Ends every operation of this world, here and on its peers, which are told by whom.
  void abort(std::uint64_t detail) noexcept {
    if (home_->inherited() || detail::users_reduction::abort(detail)) return;
    {
      auto guard = home_->lock();
      backend_.abort(by_this_rank(detail));
    }
    home_->notify();
  }

  /// Ends the world if something is still in flight; handles stay valid and report errc::aborted. In a child made by
  /// fork() this does nothing, as abort(), release() and drop(): the rank is its parent's, and peers hear nothing of
  /// the child.
  void close() noexcept {
    if (home_->inherited()) return;
    auto guard = home_->lock();
    if (!backend_.busy(*this)) return;
    backend_.abort(by_this_rank(status::destroyed));
    home_->notify_locked();
  }

  void release(op_state& s) noexcept override {
    if (!home_->inherited() && pool_.release(s)) delete this;
  }

  /// The communicator's farewell: this object ends with the last handle, or now.
  void drop() noexcept {
    life_.reset();
    if (home_->inherited()) return leave_alone();
    if (pool_.close()) delete this;
  }

  void failed(status& why) noexcept override {
    // What only this rank ran out of, or met in its user's code, is its own doing.
    const bool own = why.code == errc::out_of_resources || why.code == errc::system || why.code == errc::aborted;
    if (own && why.peer < 0) why.peer = backend_.world_rank();
    backend_.abort(why);
  }
  void threw(const char* what) noexcept override {
    try {
      if (words_.empty()) words_ = what;
    } catch (const std::bad_alloc&) {  // then without
    }
  }

  [[nodiscard]] error describe(const op_state& s) const override {
    const auto guard = home_->lock();  // others go on, and count what is told here
    status r = s.result;
    std::string text = std::string(s.info.collective) + " #" + std::to_string(s.info.sequence) + " (" +
                       detail::file_and_line(s.info.where);
    if (s.info.count != 0) text += ", " + std::to_string(s.info.count) + " x " + std::string(name(s.info.type));
    if (s.info.reduction) text += std::string(", ") + s.info.reduction;
    if (s.info.root >= 0) text += ", root " + std::to_string(s.info.root);
    text += message_of(s.info) + ") " + explain(s);
    if constexpr (requires { backend_.odd_rank(s); })
      if (r.code == errc::mismatch) r.peer = backend_.odd_rank(s);
    return error{r, text, {backend_.rank(), s.info.sequence, s.info.collective, s.info.where}};
  }

 private:
  ~issuer() = default;

  template <class Make>
  static decltype(auto) arguments(Make& make, op_state& s) {
    if constexpr (std::invocable<Make&>)
      return make();
    else
      return make(s);
  }

  void leave_alone() noexcept {  // leak checkers see that it is meant
    inherited_before_ = last_inherited_.exchange(this);
  }
  [[nodiscard]] status by_this_rank(std::uint64_t detail) const noexcept {
    return {errc::aborted, 0, backend_.world_rank(), detail};
  }

  /// ", to rank 1, tag 7", by the rank's number in the world.
  [[nodiscard]] std::string message_of(const op_info& i) const {
    std::string text;
    if constexpr (requires { backend_.members(); })
      if (i.peer >= 0)
        text += (std::string_view{i.collective} == "send" ? ", to rank " : ", from rank ") +
                std::to_string(backend_.members().world_rank(i.peer));
    if (i.tag >= 0) text += ", tag " + std::to_string(i.tag);
    return text;
  }
  [[nodiscard]] std::string explain(const op_state& s) const {
    const status& r = s.result;
    const std::string who = blamed(r.peer);
    const bool own = r.peer == backend_.world_rank();
    switch (r.code) {
      case errc::timed_out:
        if (own)
          return "failed: " + (r.other == 0 ? std::string("another rank") : subject(backend_.describe(r.other - 1))) +
                 " timed out, waiting for this rank; what kept this rank from that call? The communicator is unusable "
                 "now";
        return (s.info.expired ? "timed out after " + detail::in_seconds(s.info.expires - s.info.issued)
                               : std::string("failed: another operation, here or on another rank, timed out")) +
               ": waiting for " + sought(s.info, who) + "? The communicator is unusable now";
      case errc::peer_lost:
        return "failed: " + subject(who) +
               " died, left, or lost its connection; see that rank's own output for the cause";
      case errc::peer_left:
        return "failed: " + subject(who) +
               " destroyed its communicator before this operation was complete; do all ranks make the same calls?";
      case errc::aborted:
        if (r.detail == status::reduction_threw)
          return "failed: a reduction threw an exception on " +
                 (own ? "this rank" + (words_.empty() ? "" : ": " + words_) : who);
        if (r.detail == status::group_left)
          return "was not begun: its group was left by an exception, or its handle was dropped in it";
        return "aborted" + (r.peer < 0 ? "" : " by " + (own ? "this rank" : who)) + occasion(r.detail);
      case errc::mismatch:
        return explain_mismatch(s) + (algo::is_between_two(r)
                                          ? "; sender and receiver must agree on the count"
                                          : "; all ranks must issue the same operations in the same order");
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
        if constexpr (requires { backend_.words(r); }) return "failed: " + backend_.words(r);
        [[fallthrough]];
      default:
        return "failed: " + category().message(static_cast<int>(r.code)) +
               (r.peer >= 0 ? " (" + who + ")" : std::string());
    }
  }

  /// Who, or what from any rank, did not come in time, and a question that may help.
  static std::string sought(const op_info& i, const std::string& who) {
    const bool message_of_any = i.tag >= 0 && i.peer < 0;
    return message_of_any ? "a message with this tag from any rank; has one been sent"
                          : who + "; is that rank stuck, slow, or past this call";
  }
  /// On which a rank aborted, where it was not abort().
  static std::string occasion(std::uint64_t detail) {
    if (detail == status::pass_dropped)
      return ": a pass was dropped there before its finish() had ended, as where the backward pass throws";
    if (detail == status::destroyed)
      return ": it destroyed a communicator with operations in flight, which ends its world; wait for them first";
    return "";
  }
  [[nodiscard]] std::string blamed(int peer) const {
    return peer >= 0 ? backend_.describe(peer) : std::string("a rank that could not be determined");
  }
  /// Before a verb: what is said of a rank between commas ends with one.
  static std::string subject(std::string who) {
    if (who.find("), ") != std::string::npos) who += ',';
    return who;
  }
  [[nodiscard]] std::string explain_mismatch(const op_state& s) const {
    if constexpr (requires { backend_.explain_mismatch(s); })
      if (std::string text = backend_.explain_mismatch(s); !text.empty()) return text;
    const bool own = s.result.peer == backend_.world_rank();
    return "failed: " + (own ? "this rank" : blamed(s.result.peer) + ": it") +
           " called another collective here, or with another size or type";
  }

  std::shared_ptr<tutti::engine> home_;
  B backend_;
  op_pool pool_;
  std::atomic<duration> timeout_;
  std::shared_ptr<const char> life_ = std::make_shared<const char>();
  std::string words_;  // of a reduction that threw here
  issuer* inherited_before_ = nullptr;
  static inline std::atomic<issuer*> last_inherited_{nullptr};
};

}  // namespace tutti
