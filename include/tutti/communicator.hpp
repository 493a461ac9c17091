#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/backend/composed.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/backend/default.hpp>
#include <tutti/backend/issuer.hpp>
#include <tutti/backend/mapped_array.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/peer.hpp>

namespace tutti {

namespace detail {

// Larger elements would not fit the staging slots of a machine with many ranks; staging memory is aligned to 64 bytes.
template <class T>
concept travels = element<T> && sizeof(T) <= 4096 && alignof(T) <= 64;

template <class R>
concept elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && std::ranges::borrowed_range<R> &&
                   travels<std::ranges::range_value_t<R>>;

template <class R>
concept writable_elements = elements<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

template <class T>
concept value = travels<T> && sizeof(T) <= op_state::value_bytes && alignof(T) <= op_state::value_alignment &&
                !std::ranges::range<T>;

template <class R>
auto span_of(R&& r) noexcept {
  return std::span{std::ranges::data(r), std::ranges::size(r)};
}
template <class R>
auto read_only(R&& r) noexcept {
  return std::span<const std::ranges::range_value_t<R>>{std::ranges::data(r), std::ranges::size(r)};
}

}  // namespace detail

/// A group of ranks that can act together; the typed face of a backend.
///
/// Every rank issues the same collectives in the same order. A call starts the operation and returns its handle;
/// buffers belong to it until the handle has ended (see op). Ranges are contiguous: std::vector, std::span, arrays.
/// Distinct communicators are safe to use from distinct threads; on a shared one, issue from one thread at a time;
/// abort() may come from any thread. Wrong arguments throw usage_error before anything is sent. Failures at run time
/// throw error from the handle; the first one is sticky. Communicators split from one world share its links and its
/// fate. Destroying one with operations in flight aborts them.
template <backend B = host>
class communicator {
 public:
  using backend_type = B;

  communicator(B b, std::shared_ptr<tutti::engine> home, duration timeout)
      : core_(new issuer<B>(std::move(b), std::move(home), timeout)) {}
  communicator(communicator&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  communicator& operator=(communicator&& other) noexcept {
    if (this != &other) {
      close();
      core_ = std::exchange(other.core_, nullptr);
    }
    return *this;
  }
  ~communicator() { close(); }

  [[nodiscard]] int rank() const noexcept { return core_->backend().rank(); }
  [[nodiscard]] int size() const noexcept { return core_->backend().size(); }
  /// The number in the world of this group's rank `r`: errors name ranks by it. Throws usage_error for no rank.
  [[nodiscard]] int world_rank(int r) const {
    check_rank("world_rank", "rank", r);
    return core_->backend().members().world_rank(r);
  }

  /// The ranks of the world, by world rank: machine, host, process. Not where ranks are threads of one process.
  [[nodiscard]] const roster& peers() const noexcept
    requires requires(B& b) { b.shared_driver()->link().peers(); }
  {
    return core_->backend().shared_driver()->link().peers();
  }
  /// This process among those of the world on its machine, how many these are, and which machine it is; to choose a
  /// device, say. Groups that were split from a world tell the same.
  [[nodiscard]] int local_rank() const noexcept { return self() ? self()->local_rank : rank(); }
  [[nodiscard]] int local_size() const noexcept { return self() ? self()->local_size : size(); }
  [[nodiscard]] int node_rank() const noexcept { return self() ? self()->node_rank : 0; }

  [[nodiscard]] tutti::engine& engine() const noexcept { return core_->engine(); }
  [[nodiscard]] B& backend() const noexcept { return core_->backend(); }

  /// How long operations may take before they fail; 5 minutes unless said otherwise. `issue::timeout` overrides it.
  [[nodiscard]] duration timeout() const noexcept { return core_->timeout(); }
  void timeout(duration d) const {
    if (d <= duration{0}) throw usage_error("timeout(): a deadline must lie in the future");
    core_->set_timeout(d);
  }

  /// A communicator on the host for scalars, strings and agreements beside device data; itself on a host backend.
  [[nodiscard]] communicator& control() noexcept
    requires(B::where == space::host)
  {
    return *this;
  }

  /// Ends every operation of this world, here and on its peers, with errc::aborted that names this rank. Any thread;
  /// idempotent; does nothing after a move.
  void abort() const noexcept {
    if (core_) core_->abort();
  }

  /// Returns when every rank has called it. Costs one meeting in shared memory, else ceil(log2 n) empty messages.
  op barrier(issue how = {}, std::source_location where = std::source_location::current())
    requires supports<B, barrier_args>
  {
    check_algorithm<barrier_args>(how);
    return start(0, dtype::u8, how, where, [](op_state&) { return barrier_args{}; });
  }

  /// Reduces `inout` over all ranks, in place: element i of every rank, in an order that is the same on all ranks,
  /// which therefore end with equal bits. Collective; any count, equal on all ranks. `with` is one of the library's
  /// reductions or an associative and commutative callable (T, T) -> T. Costs: see algo/direct.hpp,
  /// algo/recursive_doubling.hpp and algo/ring.hpp.
  template <detail::writable_elements R, reduction_for<std::ranges::range_value_t<R>> Op = detail::sum_op>
    requires supports<B, all_reduce_args>
  tutti::op all_reduce(R&& inout, Op with = {}, issue how = {},
                       std::source_location where = std::source_location::current()) {
    const auto data = detail::span_of(inout);
    return reduce_into<std::ranges::range_value_t<R>>(data, data, with, how, where);
  }

  /// The same into another buffer of equal size, which must not overlap.
  template <detail::elements In, detail::writable_elements Out,
            reduction_for<std::ranges::range_value_t<Out>> Op = detail::sum_op>
    requires supports<B, all_reduce_args> &&
             std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  tutti::op all_reduce(In&& in, Out&& out, Op with = {}, issue how = {},
                       std::source_location where = std::source_location::current()) {
    const auto from = detail::read_only(in);
    const auto to = detail::span_of(out);
    check_equal("all_reduce", "in", from.size(), "out", to.size());
    if (from.data() != to.data()) check_apart("all_reduce", from, to);
    return reduce_into<std::ranges::range_value_t<Out>>(from, to, with, how, where);
  }

  /// Reduces one number or small struct; the handle's result is the reduced value: `float l = world.all_reduce(loss,
  /// mean).wait()`.
  template <detail::value T, reduction_for<T> Op = detail::sum_op>
    requires supports<B, all_reduce_args>
  basic_op<T> all_reduce(T value, Op with = {}, issue how = {},
                         std::source_location where = std::source_location::current()) {
    check_algorithm<all_reduce_args>(how, sizeof(T));
    return basic_op<T>{launch(1, dtype_of<T>(), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      const auto box = std::span<T>{reinterpret_cast<T*>(s.value), 1};
      return all_reduce_args{erase_type(std::span<const T>{box}), erase_type(box), erase_type<T>(with), how.via};
    })};
  }

  /// Gives every rank the root's `data`. Collective; count and root equal on all ranks.
  /// Costs: see algo/direct_gather.hpp and algo/tree.hpp.
  template <detail::writable_elements R>
    requires supports<B, broadcast_args>
  op broadcast(R&& data, int root, issue how = {}, std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<R>;
    check_rank("broadcast", "root", root);
    check_algorithm<broadcast_args>(how);
    const auto s = detail::span_of(data);
    return start(s.size(), dtype_of<T>(), how, where,
                 [&](op_state&) { return broadcast_args{erase_type(std::span<T>{s}), root, how.via}; });
  }

  /// The same for one number or small struct; the handle's result is the root's value.
  template <detail::value T>
    requires supports<B, broadcast_args>
  basic_op<T> broadcast(T value, int root, issue how = {},
                        std::source_location where = std::source_location::current()) {
    check_rank("broadcast", "root", root);
    check_algorithm<broadcast_args>(how);
    return basic_op<T>{launch(1, dtype_of<T>(), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      return broadcast_args{erase_type(std::span<T>{reinterpret_cast<T*>(s.value), 1}), root, how.via};
    })};
  }

  /// Gives every rank the root's string, whatever its length; only the root's needs to be set.
  op broadcast(std::string& text, int root, issue how = {},
               std::source_location where = std::source_location::current())
    requires supports<B, broadcast_sized_args>
  {
    check_rank("broadcast", "root", root);
    check_algorithm<broadcast_sized_args>(how);
    constexpr auto resize = [](void* container, std::uint64_t bytes) noexcept -> std::byte* {
      auto& s = *static_cast<std::string*>(container);
      try {
        s.resize(bytes);
      } catch (...) {
        return nullptr;
      }
      return reinterpret_cast<std::byte*>(s.data());
    };
    return start(text.size(), dtype::u8, how, where, [&](op_state&) {
      return broadcast_sized_args{&text, resize, reinterpret_cast<std::byte*>(text.data()), text.size(), root};
    });
  }

  /// Rank r gets block r of the reduction of everyone's `in`, whose count is n times that of `out`. `out` may be block
  /// r of `in`. Collective. Costs: see algo/direct_gather.hpp and algo/ring.hpp.
  template <detail::elements In, detail::writable_elements Out,
            reduction_for<std::ranges::range_value_t<Out>> Op = detail::sum_op>
    requires supports<B, reduce_scatter_args> &&
             std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  tutti::op reduce_scatter(In&& in, Out&& out, Op with = {}, issue how = {},
                           std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<Out>;
    const auto from = detail::read_only(in);
    const auto to = detail::span_of(out);
    check_equal("reduce_scatter", "in", from.size(), "out x world size", to.size() * static_cast<std::size_t>(size()));
    if (to.data() != from.data() + to.size() * static_cast<std::size_t>(rank()))
      check_apart("reduce_scatter", from, to);
    check_algorithm<reduce_scatter_args>(how, sizeof(T));
    return start(from.size(), dtype_of<T>(), how, where, [&](op_state&) {
      return reduce_scatter_args{erase_type(from), erase_type(std::span<T>{to}), erase_type<T>(with), how.via};
    });
  }

  /// Block r of everyone's `out` becomes rank r's `in`; the count of `out` is n times that of `in`, which may be the
  /// own block of `out`. Collective. Costs: see algo/direct_gather.hpp and algo/ring.hpp.
  template <detail::elements In, detail::writable_elements Out>
    requires supports<B, all_gather_args> &&
             std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
  op all_gather(In&& in, Out&& out, issue how = {}, std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<Out>;
    const auto from = detail::read_only(in);
    const auto to = detail::span_of(out);
    check_equal("all_gather", "in x world size", from.size() * static_cast<std::size_t>(size()), "out", to.size());
    if (from.data() != to.data() + from.size() * static_cast<std::size_t>(rank())) check_apart("all_gather", from, to);
    check_algorithm<all_gather_args>(how);
    return start(to.size(), dtype_of<T>(), how, where,
                 [&](op_state&) { return all_gather_args{erase_type(from), erase_type(std::span<T>{to}), how.via}; });
  }

  /// Sends to one rank, which receives with the same tag and count. Messages of one tag arrive in order. Ends when
  /// `data` may be changed again; beyond 64 KiB that is not before the receiver has called recv.
  template <detail::elements R>
    requires supports<B, send_args>
  op send(R&& data, int peer, std::uint32_t tag = 0, issue how = {},
          std::source_location where = std::source_location::current()) {
    check_peer("send", peer);
    check_algorithm<send_args>(how);
    const auto s = detail::read_only(data);
    return start(s.size(), dtype_of<std::ranges::range_value_t<R>>(), how, where,
                 [&](op_state&) { return send_args{erase_type(s), peer, tag}; });
  }

  /// Receives what `peer` sends with this tag. A different count is an error on this rank.
  template <detail::writable_elements R>
    requires supports<B, recv_args>
  op recv(R&& data, int peer, std::uint32_t tag = 0, issue how = {},
          std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<R>;
    check_peer("recv", peer);
    check_algorithm<recv_args>(how);
    const auto s = detail::span_of(data);
    return start(s.size(), dtype_of<T>(), how, where,
                 [&](op_state&) { return recv_args{erase_type(std::span<T>{s}), peer, tag}; });
  }

  /// Cuts this group: ranks with the same color form a new communicator, ordered by (key, rank). Collective; blocks.
  /// The new one shares this one's links, engine and fate: a failure of either ends both. One split of a world at a
  /// time: two threads that try get a usage_error.
  [[nodiscard]] communicator split(int color, int key = 0,
                                   std::source_location where = std::source_location::current()) {
    if (color < 0)
      throw usage_error("split(): a color is not negative; a rank that wants no group takes a color of its own");
    struct entry {
      std::int32_t color, key, rank, world_rank;
      std::uint32_t context;
    };
    auto& whole = core_->backend();
    const detail::split_in_progress alone{*whole.shared_driver()};
    const entry mine{color, key, rank(), whole.world_rank(), alone.contexts()};
    std::vector<entry> all(static_cast<std::size_t>(size()));
    all_gather(std::span{&mine, 1}, all, {}, where).wait();
    std::uint32_t context = 0;
    for (const entry& e : all) context = std::max(context, e.context);
    if (++context > 0x7fff) throw usage_error("split(): more than 32767 groups in one world");
    std::erase_if(all, [&](const entry& e) { return e.color != color; });
    std::ranges::sort(
        all, [](const entry& a, const entry& b) { return std::pair{a.key, a.rank} < std::pair{b.key, b.rank}; });
    group g{context, 0, static_cast<int>(all.size()), {}};
    for (const entry& e : all) {
      if (e.world_rank == mine.world_rank) g.rank = static_cast<int>(g.members.size());
      g.members.push_back(e.world_rank);
    }
    auto made = [&] {
      auto guard = core_->engine().lock();
      return B{whole.shared_driver(), std::move(g)};
    }();
    return {std::move(made), whole.shared_driver()->shared_home(), timeout()};
  }

  /// Zeroed memory for `count` elements that collectives move without staging: peers on this machine map it. Not
  /// collective. Freed with the array, which must not outlive operations on it. Throws error{out_of_resources}.
  template <detail::travels T>
  [[nodiscard]] mapped_array<T> allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
      throw usage_error("allocate: " + std::to_string(count) + " elements are more than there is address space");
    try {
      return mapped_array<T>::make(core_->backend().shared_driver(), count);
    } catch (const std::bad_alloc&) {
      throw error{{errc::out_of_resources}, "allocate: no memory for " + std::to_string(count) + " elements"};
    }
  }

 private:
  [[nodiscard]] const peer* self() const noexcept {
    if constexpr (requires(B& b) { b.shared_driver()->link().peers(); })
      return &peers()[static_cast<std::size_t>(core_->backend().shared_driver()->link().rank())];
    return nullptr;
  }

  template <class Make>
  op start(std::size_t count, dtype type, const issue& how, const std::source_location& where, Make make) {
    return op{launch(count, type, how, where, make)};
  }
  template <class Make>
  op_state& launch(std::size_t count, dtype type, const issue& how, const std::source_location& where, Make make) {
    using args = std::invoke_result_t<Make, op_state&>;
    if (how.timeout < duration{0}) throw usage_error(std::string(args::name) + ": a timeout cannot be negative");
    return core_->issue(count, type, how.timeout, where, make);
  }

  template <class T, class Op>
  op reduce_into(std::span<const T> in, std::span<T> out, Op with, const issue& how,
                 const std::source_location& where) {
    check_algorithm<all_reduce_args>(how, sizeof(T));
    return start(out.size(), dtype_of<T>(), how, where, [&](op_state&) {
      return all_reduce_args{erase_type(in), erase_type(out), erase_type<T>(with), how.via};
    });
  }

  void check_rank(const char* call, const char* what, int r) const {
    if (r < 0 || r >= size())
      throw usage_error(std::string(call) + ": " + what + " " + std::to_string(r) +
                        " is not a rank of this communicator of " + std::to_string(size()));
  }
  void check_peer(const char* call, int r) const {
    check_rank(call, "peer", r);
    if (r == rank())
      throw usage_error(std::string(call) + ": rank " + std::to_string(r) + " cannot exchange messages with itself");
  }
  static void check_equal(const char* call, const char* a, std::size_t x, const char* b, std::size_t y) {
    if (x != y)
      throw usage_error(std::string(call) + ": " + a + " is " + std::to_string(x) + " elements but " + b + " is " +
                        std::to_string(y));
  }
  template <class T>
  static void check_apart(const char* call, std::span<const T> in, std::span<T> out) {
    if (overlap(in.data(), in.size_bytes(), out.data(), out.size_bytes()))
      throw usage_error(std::string(call) +
                        ": in and out overlap in part; pass the same block for in place, or separate buffers");
  }
  // Of elements, direct algorithms that reduce need at least one per rank at a time; those that move bytes do not.
  template <class Args>
  void check_algorithm(const issue& how, std::size_t element_bytes = 1) const {
    if (!core_->backend().template can<Args>(how.via, element_bytes))
      throw usage_error(core_->backend().template refusal<Args>(how.via, element_bytes));
  }

  void close() noexcept {
    if (!core_) return;
    core_->close();
    std::exchange(core_, nullptr)->drop();
  }

  issuer<B>* core_;
};

}  // namespace tutti
