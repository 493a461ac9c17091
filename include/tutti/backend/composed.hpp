#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <tutti/algo/connectivity.hpp>
#include <tutti/algo/decision.hpp>
#include <tutti/algo/mismatch/call_chain.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/registration.hpp>
#include <tutti/backend/world_view.hpp>
#include <tutti/config.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/status.hpp>
#include <tutti/transport/group.hpp>
#include <tutti/transport/rank_info.hpp>

namespace tutti {

class engine;
namespace watch {
class flight_recorder;
}
template <class T>
class driver;
template <class T>
class composed;

/// True for a transport whose ranks are processes on known machines: it has a roster. Declared apart from the
/// transport, so that a file that only starts operations need not include it.
template <class Transport>
inline constexpr bool has_roster = false;

namespace detail {

template <class T>
class composed_core;

/// The members of composed for one kind of operation. impl/backend/composed.hpp defines them; they are instantiated
/// once if they are compiled separately.
template <class T, operation_args Args>
struct composed_call {
  static void start(composed_core<T>& b, const Args& a, op_state& s, algo::decision d) noexcept;
  static algo::decision begin(composed_core<T>& b, const Args& a, algo::when_posted meanwhile) noexcept;
  static algorithm chosen(const composed_core<T>& b, const Args& a) noexcept;
  static bool can(const composed_core<T>& b, algorithm via, std::size_t element_bytes) noexcept;
  static std::string refusal(const composed_core<T>& b, algorithm via, std::size_t element_bytes);
};

}  // namespace detail

/// The backend of CPUs: the algorithms of algo/ over a transport, for all ranks of a world or for a group of them. Its
/// members are called under the engine's lock. Callers may use it with an incomplete transport type.
template <class T>
class composed {
 public:
  using transport_type = T;
  static constexpr space where = space::host;

  /// Makes the backend of all ranks of the transport.
  explicit composed(std::shared_ptr<driver<T>> d);
  /// Makes the backend of a group of them.
  composed(std::shared_ptr<driver<T>> d, group g);
  composed(composed&&) noexcept;
  composed& operator=(composed&&) = delete;
  /// Frees a group's memory; that of the world is freed with the world.
  ~composed();

  [[nodiscard]] int rank() const noexcept { return members_->rank; }
  [[nodiscard]] int size() const noexcept { return members_->size; }
  [[nodiscard]] const group& members() const noexcept { return *members_; }
  /// Returns this rank's number in the world, by which failures name it.
  [[nodiscard]] int world_rank() const noexcept { return members_->world_rank(members_->rank); }
  /// Returns the ranks of the world, by world rank.
  [[nodiscard]] const roster& peers() const noexcept
    requires has_roster<T>;
  [[nodiscard]] const std::shared_ptr<driver<T>>& shared_driver() const noexcept;
  [[nodiscard]] const std::shared_ptr<engine>& shared_engine() const noexcept;
  [[nodiscard]] watch::flight_recorder& recorder() const noexcept;
  /// Makes the view of this world that a world of devices over the same ranks keeps.
  [[nodiscard]] std::unique_ptr<world_view> make_world_view() const;
  [[nodiscard]] status failure() const noexcept;
  [[nodiscard]] std::string describe(int world_rank) const;
  void abort(status why) noexcept;

  /// Fast path: runs a call that one exchange in shared memory carries, as far as that needs no waiting. If that does
  /// not complete the call, the caller passes the decision to start(), which does the rest. Does nothing while
  /// operations are in flight, as they need this rank to drive them, nor for every 64th call. `meanwhile` is called
  /// while the call is on its way to the others.
  template <detail::immediate_collective Args>
  algo::decision begin(const Args& a, algo::when_posted meanwhile = {}) noexcept {
    return detail::composed_call<T, Args>::begin(*core_.get(), a, meanwhile);
  }
  template <detail::operation_args Args>
  void start(const Args& a, op_state& s, algo::decision d = {}) noexcept {
    detail::composed_call<T, Args>::start(*core_.get(), a, s, d);
  }

  /// Returns the algorithm that a collective's start() uses: the requested one, else that of the table, else the
  /// cheapest by algo/selection/choose.hpp; `automatic` if there is only one.
  template <detail::operation_args Args>
  [[nodiscard]] algorithm chosen(const Args& a) const noexcept {
    return detail::composed_call<T, Args>::chosen(*core_.get(), a);
  }
  /// Returns true if this collective can use this algorithm here; start() takes no other.
  template <detail::operation_args Args>
  [[nodiscard]] bool can(algorithm via, std::size_t element_bytes) const noexcept {
    return detail::composed_call<T, Args>::can(*core_.get(), via, element_bytes);
  }
  /// Returns the reason why it cannot, for the user.
  template <detail::operation_args Args>
  [[nodiscard]] std::string refusal(algorithm via, std::size_t element_bytes) const {
    return detail::composed_call<T, Args>::refusal(*core_.get(), via, element_bytes);
  }

  /// Returns the connectivity of the ranks of this group.
  [[nodiscard]] algo::connectivity links() const noexcept;
  /// Returns true if every all_reduce without a requested algorithm folds all operands of an element at once: the ranks
  /// share memory, and no table of algorithms says otherwise.
  [[nodiscard]] bool folds_at_once() const noexcept;

  /// Returns the calls that do not match, after errc::mismatch; empty if they are not known.
  [[nodiscard]] std::string explain_mismatch(const op_state& s) const;
  /// Returns the words for the ranks that have not made the call of an operation; empty if none is known.
  [[nodiscard]] std::string absent(const op_state& s) const;
  /// Returns the words for the last call of a rank, by its number in the world; empty if it is not known here.
  [[nodiscard]] std::string last_call_of(int world_rank) const;
  /// Returns the world rank at fault for errc::mismatch: the one that differs from most of its group, or sent a user's
  /// message of another length. -1 if two of many differ and the calls of the others are not known.
  [[nodiscard]] int outlier(const op_state& s) const noexcept;
  /// Returns the call chain of all collectives that this rank has called so far in this group, if none of them is in
  /// flight.
  [[nodiscard]] algo::call_chain calls() const noexcept;
  /// Returns true while an operation that `owner` issued is in flight.
  [[nodiscard]] bool busy(const op_owner& owner) const noexcept;

  /// Begins the agreement on the context of a new group and returns the lowest that this rank can give it. Throws
  /// usage_error while another group of this world is being split.
  [[nodiscard]] std::uint32_t begin_split();
  void end_split() noexcept;
  /// Allocates zeroed memory of this rank, which peers map if the transport can; freed with the last copy of the
  /// pointer, on any thread. Takes the engine's lock. Throws std::bad_alloc or error{out_of_resources}.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) const;
  /// Registers memory of the caller's, so that peers map it if the transport can. Takes the engine's lock. `words` name
  /// the call in the error of another one. Throws usage_error, std::bad_alloc or error{out_of_resources}.
  [[nodiscard]] registration register_buffer(std::span<std::byte> memory, std::string words) const;

 private:
  /// Returns true for a rank whose process this one can see: of this machine, and of the same user.
  [[nodiscard]] bool is_near(int world_rank) const noexcept
    requires has_roster<T>;

  // The calls above use core_.get(), because a plain * of a unique_ptr would instantiate composed_core<T> to look for
  // its friends.
  std::unique_ptr<detail::composed_core<T>> core_;
  const group* members_;
};

}  // namespace tutti

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/backend/composed.hpp>
#endif
