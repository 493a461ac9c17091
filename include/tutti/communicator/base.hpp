#pragma once
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <tutti/algo/asked.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/backend/issuer.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/options.hpp>
#include <tutti/transport/peer.hpp>

namespace tutti {

template <backend B, class Args>
class prepared;

namespace detail {

/// What an operation is about: for its description in errors, and for the choice of its algorithm.
struct shape {
  std::size_t count = 0;
  dtype type = dtype::u8;
  std::size_t element_bytes = 1;
};
template <element T>
constexpr shape shape_of(std::size_t count) noexcept {
  return {count, dtype_of<T>(), sizeof(T)};
}

/// What an operation does with a buffer.
enum class access { read, write };

/// Under the calls of a communicator: its life, who is in it, the checks of arguments, and the start of operations.
template <backend B>
class communicator_base {
 public:
  using backend_type = B;

  communicator_base(communicator_base&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  communicator_base& operator=(communicator_base&& other) noexcept {
    if (this != &other) {
      close();
      core_ = std::exchange(other.core_, nullptr);
    }
    return *this;
  }

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

  /// Ends every operation of this world, here and on its peers, with errc::aborted that names this rank. Any thread;
  /// idempotent; does nothing after a move.
  void abort() const noexcept {
    if (core_) core_->abort();
  }

 protected:
  communicator_base(B b, std::shared_ptr<tutti::engine> home, duration timeout)
      : core_(new issuer<B>(std::move(b), std::move(home), timeout)) {}
  ~communicator_base() { close(); }

  /// Checks how it is asked for, then starts it. `make(op_state&)` returns the collective's arguments.
  template <class Make>
  op start(const shape& data, const issue& how, const std::source_location& where, Make make) {
    return op{launch(data, how, where, make)};
  }
  template <class Make>
  op_state& launch(const shape& data, const issue& how, const std::source_location& where, Make make) {
    using args = std::invoke_result_t<Make, op_state&>;
    check_issue<args>(how, data.element_bytes);
    if (how.order == reduction_order::any) return core_->issue(data.count, data.type, how.timeout, where, make);
    const algorithm via = in_order<args>(how, data.element_bytes);
    return core_->issue(data.count, data.type, how.timeout, where, [&](op_state& s) {
      args a = make(s);
      if constexpr (reduces<args>) a.via = via;
      return a;
    });
  }

  /// Checks how it is asked for and chooses its algorithm, for many starts.
  template <class Args>
  prepared<B, Args> prepare(const shape& data, const issue& how, Args args) {
    check_issue<Args>(how, data.element_bytes);
    args.via = how.order == reduction_order::any ? how.via : in_order<Args>(how, data.element_bytes);
    args.via = core_->backend().chosen(args);
    return {*core_, data, how.timeout, args};
  }

  void check_rank(const char* call, const char* what, int r) const {
    if (r < 0 || r >= size())
      throw usage_error(std::string(call) + ": " + what + " " + std::to_string(r) +
                        " is not a rank of this communicator of " + std::to_string(size()));
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
  /// One count for each rank, an offset for each or none, every block inside a buffer of `size` elements, and, where
  /// blocks are written to, none over another.
  void check_blocks(const char* call, const layout& blocks, std::size_t size, access how) const {
    const auto counts = blocks.counts(), offsets = blocks.offsets();
    check_one_each(call, "counts", counts.size());
    if (!offsets.empty()) check_one_each(call, "offsets", offsets.size());
    std::size_t end = 0;  // of the block before
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const std::size_t begin = offsets.empty() ? end : offsets[r];
      if (begin > size || counts[r] > size - begin)
        throw usage_error(std::string(call) + ": block " + std::to_string(r) + " is elements " + std::to_string(begin) +
                          " to " + std::to_string(begin) + " + " + std::to_string(counts[r]) + " of a buffer of " +
                          std::to_string(size));
      end = begin + counts[r];
    }
    if (how == access::read || offsets.empty()) return;
    for (std::size_t a = 1; a < counts.size(); ++a)
      for (std::size_t b = 0; b < a; ++b)
        if (counts[a] != 0 && counts[b] != 0 && offsets[a] < offsets[b] + counts[b] &&
            offsets[b] < offsets[a] + counts[a])
          throw usage_error(std::string(call) + ": blocks " + std::to_string(b) + " and " + std::to_string(a) +
                            " of out overlap");
  }
  void check_one_each(const char* call, const char* what, std::size_t n) const {
    if (n != ranks())
      throw usage_error(std::string(call) + ": " + std::to_string(n) + " " + what + " for " + std::to_string(ranks()) +
                        " ranks");
  }
  // Of elements, direct algorithms that reduce need at least one per rank at a time; those that move bytes do not.
  template <class Args>
  void check_issue(const issue& how, std::size_t element_bytes) const {
    if constexpr (!requires(Args a) { a.op; }) element_bytes = 1;
    if (!core_->backend().template can<Args>(how.via, element_bytes))
      throw usage_error(core_->backend().template refusal<Args>(how.via, element_bytes));
    if (how.timeout < duration{0}) throw usage_error(std::string(Args::name) + ": a timeout cannot be negative");
  }

  template <class Args>
  static constexpr bool reduces = requires(Args a) { a.op; };

  // The algorithm for reduction_order::rank.
  template <class Args>
  [[nodiscard]] algorithm in_order(const issue& how, std::size_t element_bytes) const {
    if (!reduces<Args> || size() == 1) return how.via;
    for (const algorithm a : algo::rank_ordered)
      if ((how.via == algorithm::automatic || how.via == a) && core_->backend().template can<Args>(a, element_bytes))
        return a;
    throw usage_error(
        std::string(Args::name) + ": reduction_order::rank needs algorithm direct or pairwise, and " +
        (how.via == algorithm::automatic ? "neither can run here" : name(how.via) + std::string(" was asked for")));
  }

  /// Its size as what counts of buffers are compared with, and its rank as what they are indexed by.
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }
  [[nodiscard]] std::size_t me() const noexcept { return static_cast<std::size_t>(rank()); }

  issuer<B>* core_;

 private:
  [[nodiscard]] const peer* self() const noexcept {
    if constexpr (requires(B& b) { b.shared_driver()->link().peers(); })
      return &peers()[static_cast<std::size_t>(core_->backend().shared_driver()->link().rank())];
    return nullptr;
  }

  void close() noexcept {
    if (!core_) return;
    core_->close();
    std::exchange(core_, nullptr)->drop();
  }
};

}  // namespace detail
}  // namespace tutti
