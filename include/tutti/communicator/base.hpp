#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include <tutti/async/op.hpp>
#include <tutti/backend/communicator_core.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/argument_error.hpp>
#include <tutti/communicator/call.hpp>
#include <tutti/core/options.hpp>
#include <tutti/transport/rank_info.hpp>

namespace tutti::detail {

/// Base of a communicator's calls: lifetime, the ranks of the world, and the start of operations.
template <backend B>
class communicator_base : public call_base<B> {
 public:
  using call_base<B>::rank;
  using call_base<B>::size;
  /// Type that a call with these arguments returns: the handle of an operation in flight.
  template <class Args>
  using started = typename handle_of<B>::type;
  static constexpr bool inline_path = B::where == space::host;  // values and strings are in host memory
  static constexpr argument_error by_value =                    // the reason if calls by value do not exist
      inline_path ? argument_error::none
                  : argument_error::values_are_in_host_memory_so_pass_them_to_a_communicator_of_the_host;

  communicator_base(communicator_base&& other) noexcept : call_base<B>(std::exchange(other.core_, nullptr)) {}
  communicator_base& operator=(communicator_base&& other) noexcept {
    if (this != &other) {
      end();
      core_ = std::exchange(other.core_, nullptr);
    }
    return *this;
  }

  /// Returns the world rank of this group's rank `r`, by which errors name it. Throws usage_error if there is no such
  /// rank.
  [[nodiscard]] int world_rank(int r) const {
    this->check_rank("world_rank", "rank", r);
    return core().backend().members().world_rank(r);
  }

  /// Returns the ranks of the world, by world rank: node, host, process. Not available if ranks are threads of one
  /// process.
  [[nodiscard]] const roster& peers() const
    requires requires(B& b) { b.peers(); }
  {
    return core().backend().peers();
  }
  /// Return this process's number among the world's ranks on its node, their number, and the number of the node; for
  /// example to choose a device. Groups that were split from a world return the world's numbers. Not available on
  /// devices: ask the world from which their communicator was made.
  [[nodiscard]] int local_rank() const
    requires inline_path
  {
    return self() ? self()->local_rank : rank();
  }
  [[nodiscard]] int local_size() const
    requires inline_path
  {
    return self() ? self()->local_size : size();
  }
  [[nodiscard]] int node_rank() const
    requires inline_path
  {
    return self() ? self()->node_rank : 0;
  }

  /// Returns the engine that drives this communicator's operations and resumes the coroutines that wait for them.
  [[nodiscard]] tutti::engine& engine() const { return core().engine(); }
  [[nodiscard]] B& backend() const { return core().backend(); }

  /// Returns the time after which operations fail, 5 minutes by default; the other overload sets it.
  /// `call_options::timeout` overrides it for one call.
  [[nodiscard]] duration timeout() const { return core().timeout(); }
  void timeout(duration d) const {
    if (d <= duration{0}) this->who("timeout").refuse("a deadline must lie in the future");
    core().set_timeout(d);
  }

  /// Writes the last operations of this rank into a folder: as flight_<rank>, for PyTorch's torchfrtrace, as
  /// rank_<rank>.json, and as rank_<rank>.ring, for tutti-flight (docs/slow_or_stuck.md). Not collective; any thread,
  /// also while operations are in flight. Throws error{system} or {out_of_resources}.
  void dump_flight(const std::string& folder) const
    requires requires(B& b) { b.recorder(); }
  {
    core().backend().recorder().dump(folder, "request");
  }

  /// Ends every operation of this world, here and on its peers, with errc::aborted that names this rank. May be called
  /// from any thread, and repeatedly; does nothing after a move. `why` becomes status::detail on all ranks; the five
  /// largest values are reserved.
  void abort(std::uint64_t why = 0) const noexcept {
    if (core_) core_->abort(why);
  }

 protected:
  using call_base<B>::core;
  using call_base<B>::core_;

  communicator_base(B b, std::shared_ptr<tutti::engine> engine, duration timeout)
      : call_base<B>(new communicator_core<B>(std::move(b), std::move(engine), timeout)) {}
  ~communicator_base() { end(); }

  /// Ends the communicator, which then behaves as after a move.
  void end() noexcept {
    if (!core_) return;
    core_->close();
    std::exchange(core_, nullptr)->drop();
  }

  /// Checks the arguments and the options of a call, then starts it.
  template <class Args>
  started<std::remove_cvref_t<Args>> start(const shape& data, const call_options& how,
                                           const std::source_location& where, Args&& args) {
    this->check_there(args);
    this->check_supported(args);
    const algorithm via = this->template resolved<std::remove_cvref_t<Args>>(how, data);
    if constexpr (requires { args.via; }) args.via = via;
    return started<std::remove_cvref_t<Args>>{
        core().issue(data.count, data.type, how.timeout, where, [&]() -> auto& { return args; }, how.stream)};
  }
  /// Starts a call whose arguments point into the operation: `make(op_state&)` returns them, or the object that holds
  /// them.
  template <class Make>
  op_state& launch(const shape& data, const call_options& how, const std::source_location& where, Make make) {
    using args = std::remove_cvref_t<std::invoke_result_t<Make, op_state&>>;
    const algorithm via = this->template resolved<args>(how, data);
    return core().issue(
        data.count, data.type, how.timeout, where,
        [&](op_state& s) -> decltype(auto) {
          decltype(auto) a = make(s);
          if constexpr (requires { a.via; }) a.via = via;
          return a;
        },
        how.stream);
  }

 private:
  [[nodiscard]] const rank_info* self() const {
    if constexpr (requires(B& b) { b.peers(); })
      return &peers()[static_cast<std::size_t>(core().backend().world_rank())];
    return nullptr;
  }
};

}  // namespace tutti::detail
