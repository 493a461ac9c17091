#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <tutti/backend/concept.hpp>
#include <tutti/backend/nccl/divide.hpp>
#include <tutti/backend/nccl/driver.hpp>
#include <tutti/backend/nccl/enqueue.hpp>
#include <tutti/backend/nccl/operand.hpp>
#include <tutti/backend/stream_op.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/error.hpp>
#include <tutti/impl/backend/communicator_core.hpp>
#include <tutti/transport/messaging/group_link.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti {

/// The backend of NVIDIA's GPUs over NCCL. make_nccl() makes it; communicator<nccl> is its interface. Buffers are
/// device memory.
/// An operation runs after the work that `call_options::stream` held when it was issued; without one, after the default
/// stream's work. Issuing does not wait for the device. The handle ends by wait() or co_await, which poll, or by
/// join(stream), which makes that stream's later work wait for the operation without the host. Buffers belong to the
/// operation until then, and after join() until that stream has passed this point. Ranks must call the same collectives
/// in the same order; NCCL does not detect a mismatch, only the deadline does. In a stream that is captured into a
/// graph, an operation becomes part of the graph: its handle ends by join() only. Called under the engine's lock.
template <nccl_functions Api>
class basic_nccl {
 public:
  using functions = Api;
  using driver_type = nccl_driver<Api>;
  using op_type = basic_stream_op<basic_nccl>;
  static constexpr space where = space::cuda;

  basic_nccl(std::shared_ptr<driver_type> d, group members) : driver_(std::move(d)), members_(std::move(members)) {}

  [[nodiscard]] int rank() const noexcept { return driver_->place().rank; }
  [[nodiscard]] int size() const noexcept { return driver_->place().size; }
  [[nodiscard]] int world_rank() const noexcept { return driver_->place().world_rank; }
  [[nodiscard]] int device() const noexcept { return driver_->place().device; }
  [[nodiscard]] const group& members() const noexcept { return members_; }
  [[nodiscard]] driver_type& driver() noexcept { return *driver_; }
  [[nodiscard]] const std::shared_ptr<driver_type>& shared_driver() const noexcept { return driver_; }
  [[nodiscard]] watch::flight_recorder& recorder() const noexcept { return driver_->recorder(); }
  [[nodiscard]] status failure() const noexcept { return driver_->failure(); }
  void abort(status why) noexcept {
    if (!driver_->excused()) driver_->fail(why);
  }
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept { return driver_->busy(owner); }

  [[nodiscard]] std::string describe(int world_rank) const {
    return driver_->control() ? driver_->control()->describe(world_rank) : "rank " + std::to_string(world_rank);
  }
  /// Returns the message of CUDA or NCCL about a failure, here or on the rank that failed.
  [[nodiscard]] std::string words(const status& s) const {
    if (driver_->failure().ok())
      return "its stream is captured into a graph: it runs when that is launched, and the only end for its handle is "
             "join(stream), with a stream of the same capture, before that ends";
    if (s.peer >= 0 && s.peer != world_rank())
      return "the device or NCCL on " + describe(s.peer) + "; see that rank's own output";
    return driver_->words();
  }

  /// Returns true for `automatic` only: NCCL chooses its algorithms itself.
  template <class Args>
  [[nodiscard]] bool can(algorithm via, std::size_t) const noexcept {
    return via == algorithm::automatic;
  }
  template <class Args>
  [[nodiscard]] std::string refusal(algorithm via, std::size_t) const {
    return std::string("NCCL chooses its algorithms itself, ") + name(via) +
           " cannot be asked for; ask for automatic, and see NCCL_ALGO";
  }
  template <class Args>
  [[nodiscard]] algorithm chosen(const Args& a) const noexcept {
    return a.via;
  }

  /// Throws error{unsupported}, before anything is started, if NCCL cannot run this.
  template <class Args>
  void check(const Args& a) const {
    if (const char* why = refused(a))
      throw error{{errc::unsupported}, std::string(Args::name) + ": " + why, {rank(), 0, Args::name}};
  }

  template <class Args>
    requires requires(const detail::nccl_enqueue<Api>& e, const Args& a) { e(a); }
  void start(const Args& a, op_state& s) noexcept {
    if (refused(a)) return s.complete({errc::unsupported});
    driver_->start(
        a, s,
        [](driver_type& d, const void* args) noexcept {
          return detail::nccl_enqueue<Api>{d}(*static_cast<const Args*>(args));
        },
        finish_of(a));
  }

  /// Throws usage_error if a capture into a graph, of this stream or another, does not permit an operation in it.
  void admit(stream_ref s, const char* collective) { driver_->admit(s, collective); }
  [[nodiscard]] bool captured(const op_state& s) const noexcept { return driver_->captured(s); }
  void let_go(op_state& s, detail::unjoined_end how) noexcept { driver_->let_go(s, how); }
  /// Throws usage_error if the group in which it was issued is still open: it cannot end before the group.
  void check_group(const op_state& s) {
    if (!driver_->operations().in_group()) return;
    const auto guard = driver_->engine().lock();
    if (driver_->operations().in_group(s))
      throw usage_error(std::string(s.info.collective) +
                        ": its group is still open, and begins when it ends; wait for it, or join it, after that");
  }
  /// Cancels an operation whose handle is dropped while its group is open.
  void withdraw(op_state& s) noexcept {
    if (!driver_->operations().in_group()) return;
    const auto guard = driver_->engine().lock();
    if (driver_->operations().in_group(s)) driver_->operations().withdraw(s);
  }

  /// Ends a handle without the host: later work of the stream runs after the operation.
  status join(op_state& s, stream_ref to) { return driver_->join(s, to); }

 private:
  template <class Args>
  [[nodiscard]] nccl_operand operand_of(const Args& a) const noexcept {
    const auto of = [&](dtype t) {
      return nccl_operand_of(t, a.op.kind, size(), driver_->place().version, division_of<Api>);
    };
    if constexpr (requires { a.in; })
      return of(a.in.type);
    else
      return of(a.data.type);
  }
  /// Returns the function that divides a mean that NCCL computes wrongly; null if there is nothing to divide.
  template <class Args>
  [[nodiscard]] typename driver_type::finish_fn finish_of(const Args& a) const noexcept {
    if constexpr (dividing_kernels<Api> && requires { a.op; })
      if (operand_of(a).divisor != 1)
        return [](driver_type& d, const void* args) noexcept {
          return detail::nccl_enqueue<Api>{d}.finish(*static_cast<const Args*>(args));
        };
    return nullptr;
  }
  /// Returns the reason why NCCL cannot run this; null if it can.
  template <class Args>
  [[nodiscard]] const char* refused(const Args& a) const noexcept {
    if constexpr (requires { a.op; }) {
      return operand_of(a).why;
    } else if constexpr (requires { a.tag; }) {
      if (a.tag != 0) return "NCCL's messages have no tags: those between two ranks match in their order; use tag 0";
    } else if constexpr (requires { a.in_blocks; }) {
      if (a.in.data == a.out.data && a.in.count != 0 && size() > 1)
        return "NCCL cannot exchange blocks in place; use another buffer for the output";
    }
    return nullptr;
  }

  std::shared_ptr<driver_type> driver_;
  group members_;
};

/// Scope in which operations issued on a communicator only queue; its end launches all of them at once, and they run at
/// the same time. Sends and receives between two ranks that cross each other need it, and it makes many small
/// operations cheap. Must be the same on every rank, except for messages. A nested group is a part of the outer one. A
/// wait for an operation of the group inside it is a usage_error. If an exception leaves it, no operation issued in it
/// begins: their handles end with errc::aborted, and the communicator stays usable. Peers whose groups were not left
/// wait until their deadline.
template <nccl_functions Api>
class nccl_group {
 public:
  template <class Communicator>
  explicit nccl_group(Communicator& c) : driver_(c.backend().driver()) {
    const auto guard = driver_.engine().lock();
    since_ = driver_.begin_group();
  }
  nccl_group(const nccl_group&) = delete;
  nccl_group& operator=(const nccl_group&) = delete;
  ~nccl_group() {
    const auto guard = driver_.engine().lock();
    if (std::uncaught_exceptions() > exceptions_) {
      driver_.operations().roll_back(since_);
      driver_.engine().notify_locked();
    }
    driver_.end_group();
  }

 private:
  nccl_driver<Api>& driver_;
  int exceptions_ = std::uncaught_exceptions();
  std::uint64_t since_ = 0;
};
template <class Communicator>
nccl_group(Communicator&) -> nccl_group<typename Communicator::backend_type::functions>;

}  // namespace tutti
