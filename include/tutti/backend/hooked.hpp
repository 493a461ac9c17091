#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <tutti/algo/mismatch/call_chain.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/backend/operation_view.hpp>
#include <tutti/backend/registration.hpp>
#include <tutti/backend/world_view.hpp>
#include <tutti/core/log.hpp>
#include <tutti/core/reduction/users_reduction.hpp>
#include <tutti/core/status.hpp>
#include <tutti/impl/backend/communicator_core.hpp>
#include <tutti/transport/group.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti {

namespace detail {
template <class H>
concept has_before = requires(H& h, const operation_view& o) { h.before(o); };
template <class H>
concept has_after = requires(H& h, const operation_view& o) { h.after(o); };
template <class H>
concept has_aborted = requires(H& h, const operation_view& o, const status& why) { h.aborted(o, why); };
}  // namespace detail

/// Functions of the user's around each operation of a communicator: `static constexpr const char* name`, which errors
/// tell, and at least one of these members, which cannot be overloaded:
///   before(const operation_view&)   when this rank issues an operation, before anything of it is sent
///   after(const operation_view&)    when it has its result, before the caller can see it
///   aborted(const operation_view&, const status& why)   when it has ended without one
/// After each before() that returns comes either after() or aborted(), once.
///
/// before() runs on the thread that issues, the others on the thread that drives the engine then. All run under the
/// engine's lock, so never two of one world at a time, and the world stands still meanwhile: they must not wait for
/// another thread that uses it. Calls of the library in them throw usage_error; abort() is done when they return. No
/// handle in flight and no communicator may end in them, which would block forever; memory of the world that does stays
/// until the world's end. An exception of before() or after() ends the world: the call fails with errc::aborted and the
/// exception's text, on other ranks with this rank's number. One of aborted() is logged.
template <class H>
concept operation_hooks =
    std::move_constructible<H> && requires { std::string_view{H::name}; } &&
    (detail::has_before<H> || detail::has_after<H> || detail::has_aborted<H>) &&
    (detail::has_before<H> || !requires { &H::before; }) && (detail::has_after<H> || !requires { &H::after; }) &&
    (detail::has_aborted<H> || !requires { &H::aborted; });

namespace detail {

/// Issuer of a hooked communicator's operations: calls the hooks, and passes everything on to the communicator. Its
/// members are called under the engine's lock, except release() and describe().
template <operation_hooks H>
class hook_calls final : public op_owner {
 public:
  hook_calls(std::shared_ptr<H> hooks, int world_rank) noexcept : hooks_(std::move(hooks)), rank_(world_rank) {}

  [[nodiscard]] const std::shared_ptr<H>& hooks() const noexcept { return hooks_; }

  /// Calls before(). Returns false if that has ended the operation. `me` is this rank's number in the group.
  template <class Args>
  bool begin(const Args& a, op_state& s, int me) noexcept {
    to_ = std::exchange(s.owner, this);
    status why;
    try {
      call& c = calls_[&s];
      c = {&s, false, results_of(a, me)};
      if constexpr (has_before<H>) {
        operation_view seen{s.info, rank_, operands_of(a, me), c.results};
        why = run("before", [&] { hooks_->before(seen); });
      }
      c.in_flight = why.ok();
    } catch (const std::bad_alloc&) {
      why = {errc::out_of_resources};
    }
    if (!why.ok()) s.complete(why);
    return why.ok();
  }

  void release(op_state& s) noexcept override { to_->release(s); }
  void stepped(const op_state& s) noexcept override { to_->stepped(s); }
  void ended(const op_state& s) noexcept override {
    const auto at = calls_.find(&s);  // none if there was no memory for it
    if (at != calls_.end() && std::exchange(at->second.in_flight, false))
      s.result.ok() ? succeed(at->second) : fail(at->second);
    to_->ended(s);
  }
  void stalled(const op_state& s, int awaited, duration waited) noexcept override { to_->stalled(s, awaited, waited); }
  void failed(status& why) noexcept override { to_->failed(why); }
  void threw(const char* what) noexcept override { to_->threw(what); }
  [[nodiscard]] error describe(const op_state& s) const override { return to_->describe(s); }
  [[nodiscard]] tutti::engine& engine() noexcept override { return to_->engine(); }

 private:
  struct call {
    op_state* slot = nullptr;
    bool in_flight = false;
    operation_buffers results{};
  };

  void succeed([[maybe_unused]] call& c) noexcept {
    if constexpr (has_after<H>) {
      const operation_view seen{c.slot->info, rank_, {}, c.results};
      status why = run("after", [&] { hooks_->after(seen); });
      if (why.ok()) return;
      to_->failed(why);
      c.slot->result = why;
    }
  }
  void fail([[maybe_unused]] call& c) noexcept {
    if constexpr (has_aborted<H>) try {
        const operation_view seen{c.slot->info, rank_, {}, c.results};
        users_reduction::run([&] { hooks_->aborted(seen, c.slot->result); });
      } catch (const std::exception& e) {
        log_failure(e.what());
      } catch (...) {  // abort(), of a world that has ended
      }
  }

  /// Runs a hook. Returns the status with which the operation fails if the hook has thrown, or aborted the world.
  template <class F>
  status run(const char* which, F f) noexcept {
    try {
      users_reduction::run(f);
      return {};
    } catch (const users_reduction::aborted& a) {
      return {errc::aborted, 0, -1, a.why};
    } catch (const std::exception& e) {
      tell(which, e.what());
    } catch (...) {
      tell(which, "an exception that is no std::exception");
    }
    return {errc::aborted, 0, -1, status::hook_threw};
  }
  void tell(const char* which, const char* what) noexcept try {
    to_->threw((std::string(H::name) + " (" + which + "): " + what).c_str());
  } catch (const std::bad_alloc&) {
    to_->threw(H::name);
  }
  void log_failure(const char* what) noexcept try {
    log(log_level::warning,
        "rank " + std::to_string(rank_) + ": the hook " + H::name + " (aborted) threw an exception: " + what);
  } catch (const std::bad_alloc&) {
  }

  std::shared_ptr<H> hooks_;
  const int rank_;
  op_owner* to_ = nullptr;  // the communicator; set by the first operation
  // By slot; entries stay, as slots do, so that a steady loop allocates nothing.
  std::unordered_map<const op_state*, call> calls_;
};

}  // namespace detail

/// A backend of the host with hooks around its operations, which it passes on. Made by with_hooks(). It has no fast
/// path: also a small call takes a slot, where hooks find its buffers.
template <backend B, operation_hooks H>
  requires(B::where == space::host)
class hooked {
  using driver_type = std::remove_cvref_t<decltype(std::declval<const B&>().shared_driver())>;

 public:
  static constexpr space where = space::host;
  /// The parts that groups of one world share.
  struct shared_parts {
    driver_type driver;
    std::shared_ptr<H> hooks;
  };

  hooked(std::shared_ptr<B> inner, std::shared_ptr<H> hooks)
      : inner_(std::move(inner)),
        calls_(std::make_unique<detail::hook_calls<H>>(std::move(hooks), inner_->world_rank())) {}
  /// Makes the backend of a group, for split().
  hooked(shared_parts of, group g)
      : hooked(std::make_shared<B>(std::move(of.driver), std::move(g)), std::move(of.hooks)) {}

  [[nodiscard]] H& hooks() const noexcept { return *calls_->hooks(); }

  template <class Args>
    requires supports<B, Args>
  void start(const Args& a, op_state& s) noexcept {
    if constexpr (!requires { a.tag; }) s.info.sequence = inner_->calls().calls + 1;
    if (calls_->begin(a, s, rank())) inner_->start(a, s);
  }
  [[nodiscard]] bool busy(const op_owner&) const noexcept { return inner_->busy(*calls_); }
  [[nodiscard]] shared_parts shared_driver() const { return {inner_->shared_driver(), calls_->hooks()}; }

  [[nodiscard]] int rank() const noexcept { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept { return inner_->size(); }
  [[nodiscard]] const group& members() const noexcept { return inner_->members(); }
  [[nodiscard]] int world_rank() const noexcept { return inner_->world_rank(); }
  [[nodiscard]] decltype(auto) peers() const noexcept
    requires requires(const B& b) { b.peers(); }
  {
    return inner_->peers();
  }
  [[nodiscard]] decltype(auto) shared_engine() const noexcept { return inner_->shared_engine(); }
  [[nodiscard]] watch::flight_recorder& recorder() const noexcept { return inner_->recorder(); }
  [[nodiscard]] std::unique_ptr<world_view> make_world_view() const { return inner_->make_world_view(); }
  [[nodiscard]] status failure() const noexcept { return inner_->failure(); }
  [[nodiscard]] std::string describe(int world_rank) const { return inner_->describe(world_rank); }
  void abort(status why) noexcept { inner_->abort(why); }
  template <class Args>
  [[nodiscard]] algorithm chosen(const Args& a) const noexcept {
    return inner_->chosen(a);
  }
  template <class Args>
  [[nodiscard]] bool can(algorithm via, std::size_t element_bytes) const noexcept {
    return inner_->template can<Args>(via, element_bytes);
  }
  template <class Args>
  [[nodiscard]] std::string refusal(algorithm via, std::size_t element_bytes) const {
    return inner_->template refusal<Args>(via, element_bytes);
  }
  [[nodiscard]] auto links() const noexcept { return inner_->links(); }
  [[nodiscard]] bool folds_at_once() const noexcept { return inner_->folds_at_once(); }
  [[nodiscard]] std::string explain_mismatch(const op_state& s) const { return inner_->explain_mismatch(s); }
  [[nodiscard]] std::string absent(const op_state& s) const { return inner_->absent(s); }
  [[nodiscard]] std::string last_call_of(int world_rank) const { return inner_->last_call_of(world_rank); }
  [[nodiscard]] int outlier(const op_state& s) const noexcept { return inner_->outlier(s); }
  [[nodiscard]] algo::call_chain calls() const noexcept { return inner_->calls(); }
  [[nodiscard]] std::uint32_t begin_split() { return inner_->begin_split(); }
  void end_split() noexcept { inner_->end_split(); }
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) const { return inner_->allocate(bytes); }
  [[nodiscard]] registration register_buffer(std::span<std::byte> memory, std::string words) const {
    return inner_->register_buffer(memory, std::move(words));
  }

 private:
  std::shared_ptr<B> inner_;
  std::unique_ptr<detail::hook_calls<H>> calls_;
};

}  // namespace tutti
