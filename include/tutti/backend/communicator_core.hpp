#pragma once
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include <tutti/algo/decision.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op_pool.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/reduction/users_reduction.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/os/coarse_clock.hpp>
#include <tutti/watch/flight_recorder.hpp>
#include <tutti/watch/issue_of.hpp>

namespace tutti {

/// The type-independent part of a communicator: a backend, the pool of its operations, and the texts of their errors.
/// Lives until the communicator and the last handle of a slot are destroyed, whichever is later.
template <backend B>
class communicator_core final : public op_owner {
 public:
  communicator_core(B b, std::shared_ptr<tutti::engine> engine, duration timeout)
      : engine_(std::move(engine)), backend_(std::move(b)), timeout_(timeout) {
    if constexpr (records) {
      recorder_ = &backend_.recorder();
      if (backend_.members().context == 0) return;
      const auto guard = engine_->lock();
      recorder_->note_group(backend_.members().context, backend_.members().members);
    }
  }
  communicator_core(const communicator_core&) = delete;
  communicator_core& operator=(const communicator_core&) = delete;

  [[nodiscard]] B& backend() noexcept { return backend_; }
  [[nodiscard]] const B& backend() const noexcept { return backend_; }
  [[nodiscard]] tutti::engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] const std::shared_ptr<tutti::engine>& shared_engine() const noexcept { return engine_; }
  /// Returns a pointer that expires with the communicator: after that nothing may be issued.
  [[nodiscard]] std::weak_ptr<const char> life() const noexcept { return life_; }
  [[nodiscard]] duration timeout() const noexcept { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(duration d) noexcept { timeout_.store(d, std::memory_order_relaxed); }

  /// Starts a collective. `make(op_state&)` returns arguments that may point into the slot; `make()`, which may be
  /// called twice, returns arguments that do not. If the backend's begin() completes the call, `make()` needs no slot,
  /// and the description and the deadline of the operation are not recorded.
  template <class Make>
  op_state& issue(std::size_t count, dtype type, duration timeout, const std::source_location& where, Make make,
                  stream_ref stream = {}) {
    using args_type = std::remove_cvref_t<decltype(arguments(make, std::declval<op_state&>()))>;
    engine_->check_place(args_type::name);
    const detail::errno_guard kept;
    auto guard = engine_->lock();
    constexpr bool in_slot = !std::invocable<Make&>;
    constexpr bool can_begin = requires(const args_type& a) {
      { backend_.begin(a) } noexcept -> std::same_as<algo::decision>;
    };
    [[maybe_unused]] algo::decision decided;  // by begin()
    static_assert(!can_begin || !requires { typename B::op_type; }, "handles of devices need a slot");
    if constexpr (requires { backend_.admit(stream, ""); }) backend_.admit(stream, args_type::name);
    std::uint64_t recorded = 0;
    if constexpr (can_begin && !in_slot) {
      pool_.reserve();  // after begin() nothing may fail
      if (begin(make(), count, type, where, decided, recorded)) return op_state::ended();
    }
    op_state& s = pool_.acquire();
    const auto& args = arguments(make, s);
    s.owner = this;
    if constexpr (can_begin && in_slot) {
      if (begin(args, count, type, where, decided, recorded)) {
        s.complete_at_once();
        return s;
      }
    }
    const auto now = os::coarse_now();
    const duration limit = timeout > duration{0} ? timeout : timeout_.load(std::memory_order_relaxed);
    const deadline expires = limit >= (deadline::max)() - now ? (deadline::max)() : now + limit;
    s.info = {args.name, count, type, 0, where, now, expires};
    s.info.stream = stream;
    if constexpr (requires { args.within; })
      if (args.within) s.info.collective = args.within;
    if constexpr (requires { args.op.kind; }) s.info.reduction = name(args.op.kind);
    if constexpr (requires { args.root; }) s.info.root = args.root;
    if constexpr (requires { args.peer; }) s.info.peer = args.peer;
    if constexpr (requires { args.tag; }) s.info.tag = args.tag;
    if constexpr (records) {
      if (recorded == 0) recorded = recorder_->issue(watch::issue_of(args, count, type), where);
      s.record = recorded;
    }
    if constexpr (can_begin)
      backend_.start(args, s, decided);
    else
      backend_.start(args, s);
    if constexpr (records) recorder_->describe(s.record, s.info.sequence, backend_.members().context, s.info.via);
    return s;
  }

  /// Ends every operation of this world, here and on its peers, which learn this rank's number.
  void abort(std::uint64_t detail) noexcept {
    if (engine_->inherited() || detail::users_reduction::abort(detail)) return;
    {
      auto guard = engine_->lock();
      backend_.abort(by_this_rank(detail));
    }
    engine_->notify();
  }

  /// Ends the world if an operation is still in flight; handles stay valid and report errc::aborted. In a child made by
  /// fork() this does nothing, as do abort(), release() and drop(): the rank belongs to the parent, and peers do not
  /// hear of the child.
  void close() noexcept {
    if (engine_->inherited()) return;
    auto guard = engine_->lock();
    if (!backend_.busy(*this)) return;
    backend_.abort(by_this_rank(status::destroyed));
    engine_->notify_locked();
  }

  void release(op_state& s) noexcept override {
    if (!engine_->inherited() && pool_.release(s)) delete this;
  }

  /// Releases the communicator's part: this object is destroyed with the last handle, or now.
  void drop() noexcept {
    life_.reset();
    if (engine_->inherited()) return leave_alone();
    if (pool_.close()) delete this;
  }

  void failed(status& why) noexcept override;
  void stepped(const op_state& s) noexcept override;
  void ended(const op_state& s) noexcept override;
  void stalled(const op_state& s, int awaited, duration waited) noexcept override;
  void threw(const char* what) noexcept override;
  [[nodiscard]] error describe(const op_state& s) const override;

 private:
  /// True if the backend's world has a flight recorder.
  static constexpr bool records = requires(B& b) {
    { b.recorder() } noexcept -> std::same_as<watch::flight_recorder&>;
  };

  ~communicator_core() = default;

  /// Begins a call by the backend's fast path, and records it while it is on its way: `recorded` is its id then.
  /// Returns true if it is complete.
  template <class Args>
  bool begin(const Args& args, [[maybe_unused]] std::size_t count, [[maybe_unused]] dtype type,
             [[maybe_unused]] const std::source_location& where, algo::decision& decided,
             [[maybe_unused]] std::uint64_t& recorded) noexcept {
    if (detail::side_by_side::any()) return false;
    if constexpr (records) {
      auto note = [&](std::uint64_t sequence, algorithm via) noexcept {
        recorded = recorder_->issue(watch::issue_of(args, count, type).place(sequence, backend_.members().context, via),
                                    where);
      };
      decided = backend_.begin(args, algo::when_posted{note});
      if (decided.is_complete()) recorder_->ended_at_once(recorded);
    } else {
      decided = backend_.begin(args);
    }
    return decided.is_complete();
  }
  template <class Make>
  static decltype(auto) arguments(Make& make, op_state& s) {
    if constexpr (std::invocable<Make&>)
      return make();
    else
      return make(s);
  }

  /// Returns the text of an operation: "all_reduce #42 (train.cpp:88, 1000 x float32, sum)".
  [[nodiscard]] std::string title(const op_state& s) const;

  void leave_alone() noexcept {  // keeps it reachable for leak checkers
    inherited_before_ = last_inherited_.exchange(this);
  }
  [[nodiscard]] status by_this_rank(std::uint64_t detail) const noexcept {
    return {errc::aborted, 0, backend_.world_rank(), detail};
  }

  std::shared_ptr<tutti::engine> engine_;
  B backend_;
  watch::flight_recorder* recorder_ = nullptr;  // of the world, if it has one
  op_pool pool_;
  std::atomic<duration> timeout_;
  std::shared_ptr<const char> life_ = std::make_shared<const char>();
  std::string words_;  // message of a reduction that threw here
  communicator_core* inherited_before_ = nullptr;
  static inline std::atomic<communicator_core*> last_inherited_{nullptr};
};

}  // namespace tutti

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/backend/communicator_core.hpp>
#endif
